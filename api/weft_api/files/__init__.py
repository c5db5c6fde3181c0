"""What a job left: its files, its trained model as a zip, the code it was made with."""
