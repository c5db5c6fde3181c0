"""The inputs of a learner: code, data and a pretrained model, brought through the node's cache."""
