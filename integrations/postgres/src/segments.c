/*
 * The files a relation's main fork lies in, as far as this backend has them open.
 *
 * A relation is a row of files, the segments, of RELSEG_SIZE blocks each. Advice to the kernel wants a descriptor,
 * and the backend's own is the right one: read-ahead is state of a descriptor, and a second one costs a
 * place among the backend's open files. md.c keeps them in SMgrRelationData->md_seg_fds, an array of a struct that it
 * declares for itself; ours below mirrors it, the same in PostgreSQL 14 to 18.
 *
 * It relies on md.c being the storage manager, and on that struct: the number of a segment in it must be its place
 * in the array. The File is the virtual descriptor of fd.c, which opens the file again when the kernel's
 * descriptor was given up; it is good until the relation's storage is closed, so it is not to be kept.
 *
 * Failure: a segment that is not open, or an array that is not as known, is "none".
 */
#include "forebay.h"

#include "storage/smgr.h"

struct _MdfdVec
{
	File		mdfd_vfd;
	BlockNumber mdfd_segno;
};

/*
 * The open file of the main fork that a block lies in, and where in it, in bytes; false if this backend does not have it
 * open. The block may be beyond the relation's end. Nothing is opened, and nothing can fail.
 */
bool
fb_segment_of(SMgrRelation smgr, BlockNumber block, File *file, off_t *offset)
{
	BlockNumber number = block / RELSEG_SIZE;
	const struct _MdfdVec *segment;

	/* 0 is md.c, the server's only storage manager. */
	if (smgr->smgr_which != 0 || number >= (BlockNumber) smgr->md_num_open_segs[MAIN_FORKNUM])
		return false;
	segment = &smgr->md_seg_fds[MAIN_FORKNUM][number];
	if (segment->mdfd_segno != number || segment->mdfd_vfd <= 0)
		return false;
	*file = segment->mdfd_vfd;
	*offset = (off_t) BLCKSZ * (block % RELSEG_SIZE);
	return true;
}

/* The same, of a relation. */
bool
fb_segment(Relation rel, BlockNumber block, File *file, off_t *offset)
{
	return fb_segment_of(RelationGetSmgr(rel), block, file, offset);
}
