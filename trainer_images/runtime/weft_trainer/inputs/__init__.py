"""What a learner has before its program starts: code, data and a pretrained model, by way of the node's cache."""
