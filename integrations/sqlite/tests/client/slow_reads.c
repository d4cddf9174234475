/*
 * Simulates a disk on which reads wait, under any SQLite. It is loaded before the program's own libraries.
 *
 * Test data is small and was just written, so the kernel has all of it in memory; the VFS, which looks ahead where
 * reads wait, would stay idle. Here the file is written out and dropped from the page cache once in a fixed number of
 * reads, and a read that misses the cache takes at least SLOW_NS. Pages that were prefetched early enough are cached.
 *
 * Syncs do nothing: the tests cut no power, and those with many small transactions would mostly wait for syncs.
 *
 * It relies on 64-bit Linux, and on SQLite reading pages with pread64. Failure: if the kernel does not report what is
 * cached (tmpfs reports everything), reads are as fast as before.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The smallest page: smaller reads are of headers. */
#define PAGE_MIN 512
#define READS_UNTIL_COLD 200
#define SLOW_NS 60000

static atomic_ulong reads;

static long
since(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - start->tv_sec) * 1000000000L + now.tv_nsec - start->tv_nsec;
}

ssize_t
pread64(int fd, void *to, size_t size, off64_t at)
{
	struct iovec into = {to, size};
	struct timespec start;
	ssize_t		there;

	if (size < PAGE_MIN)
		return syscall(SYS_pread64, fd, to, size, at);
	if (atomic_fetch_add(&reads, 1) % READS_UNTIL_COLD == 0)
	{
		sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	clock_gettime(CLOCK_MONOTONIC, &start);
	there = preadv2(fd, &into, 1, at, RWF_NOWAIT);
	if (there == (ssize_t) size || (there < 0 && errno != EAGAIN))
		return there >= 0 ? there : syscall(SYS_pread64, fd, to, size, at);
	there = syscall(SYS_pread64, fd, to, size, at);
	while (since(&start) < SLOW_NS)
		;
	return there;
}

ssize_t
pread(int fd, void *to, size_t size, off_t at)
{
	return pread64(fd, to, size, at);
}

int
fsync(int fd)
{
	(void) fd;
	return 0;
}

int
fdatasync(int fd)
{
	(void) fd;
	return 0;
}
