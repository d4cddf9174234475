/*
 * A slow disk below any server: an LD_PRELOAD library that delays reads.
 *
 * Test data is small, so the kernel has cached all of it and no read waits; an extension that acts on waiting would do
 * nothing. Here a read of blocks takes at least FOREBAY_SLOW_READ_US microseconds, spent sleeping, unless that block
 * was hinted (POSIX_FADV_WILLNEED) by the same process. In one stretch of five all reads are quick, so that
 * backing off is tested as well, unless FOREBAY_SLOW_READ_STEADY is set. Advice is counted in the file that
 * FOREBAY_SLOW_READ_HINTS names: 64-bit numbers in native byte order, of NORMAL, RANDOM, SEQUENTIAL and WILLNEED (0 to
 * 3 on Linux), of blocks read, and of basic blocks executed in code compiled with -fsanitize-coverage=trace-pc: its
 * work, independent of time. While the number after these is not zero, no read is delayed.
 *
 * It relies on PostgreSQL reading blocks by pread and preadv, and on 64-bit Linux. The file of the counts lives as
 * long as the server. Failure: without the variables reads are not delayed, and nothing is counted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 8192
/* How many hints are kept. */
#define HINTED 4096
/* Slow reads of a stretch, and all of them. */
#define STRETCH_SLOW 2000
#define STRETCH 2500

#define ADVICES 4
#define READS ADVICES
#define WORK (READS + 1)
#define QUICK (WORK + 1)
#define COUNTS (QUICK + 1)
static _Atomic uint64_t *counts;
static long slow_ns;
static int	steady;
static uint64_t hinted[HINTED];
static unsigned long reads;

__attribute__((constructor)) static void
begin(void)
{
	const char *us = getenv("FOREBAY_SLOW_READ_US");
	const char *path = getenv("FOREBAY_SLOW_READ_HINTS");

	steady = getenv("FOREBAY_SLOW_READ_STEADY") != NULL;
	/* Otherwise a sleep takes 50 us more. */
	prctl(PR_SET_TIMERSLACK, 1UL);
	if (us != NULL)
		slow_ns = atol(us) * 1000;
	if (path != NULL)
	{
		int			fd = open(path, O_RDWR | O_CLOEXEC);

		if (fd >= 0)
		{
			void	   *at = mmap(NULL, COUNTS * sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

			if (at != MAP_FAILED)
				counts = at;
			close(fd);
		}
	}
}

/* Called by instrumented code, at each basic block. */
void
__sanitizer_cov_trace_pc(void)
{
	if (counts != NULL)
		atomic_fetch_add_explicit(&counts[WORK], 1, memory_order_relaxed);
}

static uint64_t
key_of(int fd, off_t at)
{
	return (uint64_t) fd << 44 | (uint64_t) (at / BLOCK + 1);
}

static uint64_t *
place_of(uint64_t key)
{
	return &hinted[(key * 0x9E3779B97F4A7C15u) >> 52];
}

/* Spends the time of a read of `size` bytes at `at`. */
static void
wait_for(int fd, off_t at, size_t size)
{
	uint64_t	key = key_of(fd, at);
	uint64_t   *place = place_of(key);
	struct timespec time = {.tv_nsec = slow_ns};

	if (counts != NULL)
		counts[READS] += size / BLOCK;
	if (*place == key)
	{
		*place = 0;
		return;
	}
	if (slow_ns == 0 || (counts != NULL && counts[QUICK] != 0) || (reads++ % STRETCH >= STRETCH_SLOW && !steady))
		return;
	/* A signal may end it: the next read waits. */
	clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

ssize_t
pread64(int fd, void *to, size_t size, off64_t at)
{
	if (size % BLOCK == 0)
		wait_for(fd, at, size);
	return syscall(SYS_pread64, fd, to, size, at);
}

ssize_t
pread(int fd, void *to, size_t size, off_t at)
{
	return pread64(fd, to, size, at);
}

ssize_t
preadv64(int fd, const struct iovec *to, int count, off64_t at)
{
	size_t		size = 0;

	for (int i = 0; i < count; i++)
		size += to[i].iov_len;
	wait_for(fd, at, size);
	return syscall(SYS_preadv, fd, to, (long) count, (long) at, 0L);
}

ssize_t
preadv(int fd, const struct iovec *to, int count, off_t at)
{
	return preadv64(fd, to, count, at);
}

int
posix_fadvise64(int fd, off64_t at, off64_t size, int advice)
{
	/* Hints are counted in blocks: one hint may cover many. */
	if (counts != NULL && advice < ADVICES)
		counts[advice] += advice == POSIX_FADV_WILLNEED ? (size + BLOCK - 1) / BLOCK : 1;
	if (advice == POSIX_FADV_WILLNEED)
		for (off64_t block = at; block < at + size; block += BLOCK)
			*place_of(key_of(fd, block)) = key_of(fd, block);
	return syscall(SYS_fadvise64, fd, at, size, (long) advice) == 0 ? 0 : errno;
}

int
posix_fadvise(int fd, off_t at, off_t size, int advice)
{
	return posix_fadvise64(fd, at, size, advice);
}
