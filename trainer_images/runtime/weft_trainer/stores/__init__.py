"""Where objects are kept: a user's S3 and the installation's own store, behind one interface; how files get there."""
