"""A private S3 server: OpenStack Swift with its S3 interface, all of it in one folder."""
