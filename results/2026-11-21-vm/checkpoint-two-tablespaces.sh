#!/bin/bash
# two tablespaces on two loop devices with unequal write limits (cgroup v2 io.max), sorted beside balanced
set -e
W=${WORK:-/tmp/two}; mkdir -p $W/a $W/b
for x in a b; do [ -f $W/$x.img ] || { truncate -s 6G $W/$x.img; mkfs.ext4 -q -F $W/$x.img; }; done
A=$(losetup --find --show --direct-io=on $W/a.img); B=$(losetup --find --show --direct-io=on $W/b.img)
mount $A $W/a; mount $B $W/b
fin() { set +e; echo 0 > /sys/fs/cgroup/blkio/cgroup.procs 2>/dev/null; umount $W/a $W/b; losetup -d $A $B; rmdir /sys/fs/cgroup/blkio/forebay 2>/dev/null; }
trap fin EXIT
mkdir -p /sys/fs/cgroup/blkio/forebay; true
da=$(cat /sys/block/$(basename $A)/dev); db=$(cat /sys/block/$(basename $B)/dev)
echo "$da 104857600" > /sys/fs/cgroup/blkio/forebay/blkio.throttle.write_bps_device
echo "$db 52428800" > /sys/fs/cgroup/blkio/forebay/blkio.throttle.write_bps_device
cat /sys/fs/cgroup/blkio/forebay/blkio.throttle.write_bps_device
bash -c 'echo $$ > /sys/fs/cgroup/blkio/forebay/cgroup.procs; exec "$@"' _ forebay lab checkpoint --dir $W/a --dir2 $W/b --patterns two-tablespaces --elevators sorted,balanced --combine on --cache direct --backends uring --size 1GiB --dirty 32768 --rounds 1 --interval 3s --json ${WORK:-/tmp/two}.json > /tmp/bench/two.txt 2>/tmp/bench/two.err &
P=$!
while kill -0 $P 2>/dev/null; do echo "$(date +%s.%N) $(awk '{print $1+$2}' /sys/block/$(basename $A)/inflight) $(awk '{print $1+$2}' /sys/block/$(basename $B)/inflight)"; sleep 0.05; done > ${WORK:-/tmp/two}.inflight
cat ${WORK:-/tmp/two}.txt
