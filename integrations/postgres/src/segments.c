/*
 * The files of a relation's main fork that this backend has open.
 *
 * A relation is a sequence of files, the segments, of RELSEG_SIZE blocks each. Advice to the kernel needs a descriptor,
 * and the backend's own is the right one: readahead is state of a descriptor, and a second one costs a
 * slot among the backend's open files. md.c keeps them in SMgrRelationData->md_seg_fds, an array of a struct that it
 * declares privately; our copy below is the same in PostgreSQL 14 to 19.
 *
 * It relies on md.c being the storage manager, and on that struct: the number of a segment in it must be its index
 * in the array. The File is the virtual descriptor of fd.c, which reopens the file if the kernel's
 * descriptor was closed; it is valid until the relation's storage is closed, so callers must not keep it.
 *
 * Failure: if a segment is not open, or the array is not as expected, the result is "none".
 */
#include "forebay.h"

#include "storage/smgr.h"
#include "utils/rel.h"

struct _MdfdVec
{
	File		mdfd_vfd;
	BlockNumber mdfd_segno;
};

/*
 * The open file of the main fork that contains a block, and the block's offset in it, in bytes; returns false if this
 * backend does not have the file open. The block may be beyond the relation's end. Opens nothing, and cannot fail.
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

/* The same, for a relation. */
bool
fb_segment(Relation rel, BlockNumber block, File *file, off_t *offset)
{
	return fb_segment_of(RelationGetSmgr(rel), block, file, offset);
}
