"""The text of Swift's configuration files."""

import os
import pwd

from s3.layout import ACCESS_KEY, REGION, SECRET_KEY, Layout, Settings

# s3api before tempauth, and slo after both: else a multipart upload answers 501.
PIPELINE = (
    "catch_errors gatekeeper proxy-logging cache listing_formats bulk conditional s3api tempauth copy slo dlo"
    " versioned_writes symlink proxy-logging2 proxy-server"
)

SWIFT = """\
[swift-hash]
swift_hash_path_prefix = slurmopt
swift_hash_path_suffix = slurmopt
[storage-policy:0]
name = one
default = yes
"""

COMMON = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 1
user = {user}
swift_dir = {etc}
devices = {devices}
mount_check = false
disable_fallocate = true
log_address = /dev/null
network_chunk_size = 1048576
disk_chunk_size = 1048576
client_chunk_size = 1048576
object_chunk_size = 1048576
client_timeout = 600
"""

STORAGE = """\
[pipeline:main]
pipeline = {daemon}-server
[app:{daemon}-server]
use = egg:swift#{daemon}
network_chunk_size = 1048576
disk_chunk_size = 1048576
allow_versions = true
"""

PROXY = """\
[pipeline:main]
pipeline = {pipeline}
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:proxy-logging]
use = egg:swift#proxy_logging
[filter:proxy-logging2]
use = egg:swift#proxy_logging
[filter:cache]
use = egg:swift#memcache
# There is none; without an address Swift would try the usual port.
memcache_servers = 127.0.0.1:1
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:bulk]
use = egg:swift#bulk
[filter:conditional]
# By its name in the folder of serve.py.
paste.filter_factory = conditional:filter_factory
[filter:s3api]
use = egg:swift#s3api
location = {region}
min_segment_size = 1024
max_upload_part_num = 10000
# A listing of more has pages, as one of 1,000 has at Amazon.
max_bucket_listing = 100
[filter:tempauth]
use = egg:swift#tempauth
user_{account} = {secret} .admin
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
max_manifest_segments = 10000
[filter:dlo]
use = egg:swift#dlo
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_object_versioning = true
[filter:symlink]
use = egg:swift#symlink
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
recheck_account_existence = 0
recheck_container_existence = 0
"""


def daemon_conf(layout: Layout, settings: Settings, daemon: str) -> str:
    """The configuration of one of the four servers."""
    user = pwd.getpwuid(os.getuid()).pw_name
    port = settings.ports[daemon]
    head = COMMON.format(port=port, user=user, etc=layout.etc, devices=layout.device.parent)
    if daemon == "proxy":
        account = ACCESS_KEY.replace(":", "_")
        return head + PROXY.format(pipeline=PIPELINE, region=REGION, account=account, secret=SECRET_KEY)
    return head + STORAGE.format(daemon=daemon)
