/* SPDX-License-Identifier: BSD-2-Clause
 * mbufs as in BSD: small headers over inline, clustered or external storage, in chains. */
#ifndef WEIR_BUF_MBUF_H
#define WEIR_BUF_MBUF_H

#include "base/base.h"
#include "weir/stack.h" /* struct weir_alloc */

#define MBUF_SIZE 256     /* of a struct mbuf with its inline storage */
#define CLUSTER_SIZE 2048 /* storage in a cluster */
#define BIGCLUSTER_16K 16384
#define BIGCLUSTER_64K 65536
/* Room in front of the transport header: virtio-net (12) + Ethernet (14) + IPv6 (40), rounded up.
 */
#define MBUF_HEADROOM 72

/* m_flags */
#define M_PKTHDR 0x0001 /* first of a packet: m_pkt is valid */
#define M_EXT 0x0002    /* storage is *m_ext, not inline */
#define M_RDONLY 0x0004 /* storage must not be written (file windows, user memory) */
#define M_TAIL                                                                                     \
    0x0008 /* may append into trailing space though the cluster is shared: set only on the         \
              mbuf that its creator fills, lost in every copy */
#define M_EOR 0x0010  /* end of a record (datagram) */
#define M_ADDR 0x0020 /* holds a struct sockaddr_storage in front of a datagram's data */
#define M_OOB 0x0040  /* ends with a byte of urgent data */
#define M_VOLATILE                                                                                 \
    0x0080 /* storage that may change or vanish under us (windows on files): who has read it asks  \
              mbuf_intact afterwards */
#define M_BCAST 0x0100   /* received as link-layer broadcast */
#define M_MCAST 0x0200   /* received as link-layer multicast */
#define M_LOOP 0x0400    /* came through the loopback interface */
#define M_CONFIRM 0x0800 /* out: the peer answers, so the next hop is there (RFC 4861 7.3.1) */

/* m_pkt.csum_flags */
#define CSUM_L4_PARTIAL                                                                            \
    0x01 /* out: the transport checksum is still to be done at csum_start/csum_offset              \
            (the field holds the pseudo-header sum) */
#define CSUM_L4_VALID 0x02 /* in: the link vouches for the transport checksum */
#define CSUM_IP_VALID 0x04 /* in: and for the IPv4 header checksum */
#define CSUM_TSO4 0x08     /* out: a superframe, cut into tso_segsz pieces at or below the link */
#define CSUM_TSO6 0x10

struct mbuf_ext;

struct mbuf_pkt {
    uint32_t len; /* bytes of the whole chain */
    uint16_t csum_flags;
    uint16_t csum_start; /* from m_data of the first mbuf at the time the packet meets the link */
    uint16_t csum_offset;
    uint16_t
        tso_segsz; /* payload bytes of a wire segment when the packet is a superframe, else 0 */
    uint16_t segs; /* wire segments this packet stands for (LRO, superframes), at least 1 */
    uint8_t l3_off, l4_off; /* set by IP input: offsets from the start of the frame's IP header: 0
                               and header length */
    uint32_t hash;          /* flow hash, 0 unknown */
    uint64_t time_ns;       /* receive time */
    struct netif *netif;    /* received on; borrowed, valid while the owner processes the packet */
};

struct mbuf {
    struct mbuf *m_next;    /* rest of this packet or record */
    struct mbuf *m_nextpkt; /* next packet or record in a queue */
    uint8_t *m_data;
    uint32_t m_len;
    uint16_t m_flags;
    uint16_t m_class; /* private to the pools */
    struct mbuf_ext *m_ext;
    struct mbuf_account *m_account; /* who is charged for this header */
    struct mbuf_pkt m_pkt;
    uint8_t m_dat[MBUF_SIZE - 48 - sizeof(struct mbuf_pkt)];
};
_Static_assert(sizeof(struct mbuf) == MBUF_SIZE, "an mbuf is MBUF_SIZE bytes");
#define MBUF_INLINE sizeof(((struct mbuf *)0)->m_dat)

/* Reference-counted storage. Clusters embed one; external storage brings its own. */
struct mbuf_ext {
    _Atomic uint32_t refs;
    uint32_t size; /* of storage */
    uint8_t *buf;
    void (*free)(
        struct mbuf_ext *e); /* called once, by whoever drops the last reference, any thread */
    void *ctx;
    struct mbuf_account *account; /* charged `size` + overhead; NULL: nobody */
    uint32_t kind;                /* private to the pools */
    /* Of volatile storage alone (M_VOLATILE). broken: some of it has vanished. intact: whether
     * [data, data+len) still is what it stands for; any thread. */
    _Atomic uint32_t broken;
    bool (*intact)(struct mbuf_ext *e, const uint8_t *data, uint32_t len);
};

/* Memory charged to one stack; outlives it until the last buffer comes home. With a limit of 64 MB
 * and more and several threads, each settles what it did only now and then (within 1 MB): mbufs and
 * bytes lag behind; mbuf_usage and a refusal at the limit do not. */
struct mbuf_account {
    CACHE_ALIGNED _Atomic int64_t mbufs;
    _Atomic int64_t bytes; /* storage and headers */
    _Atomic int64_t limit; /* bytes; allocation beyond it is refused and counted */
    _Atomic uint64_t denied;
    _Atomic uint32_t refs;
    uint32_t line; /* (c) which of each thread's lines gathers what the thread does to it */
    /* Test hook: when n > 0, the n-th allocation from now is refused, once; 0 or negative: off. */
    _Atomic int64_t fail_after;
};

/* --- the process's pools --- */
/* Set the allocator of the pools: required before the first account. The first call counts (later
 * ones do nothing) until mbuf_pools_drain has given everything back; a->ctx must live as long. */
void mbuf_pools_init(const struct weir_alloc *a);
/* Give cached memory back (magazines of this thread, and the depot). For tests and exit. */
void mbuf_pools_drain(void);
/* Move this thread's magazines to the depot; the runtime calls it when a thread leaves. */
void mbuf_thread_exit(void);
/* Move this thread's magazines to the depot if memory was short since the last call, else nothing:
 * cheap. Whoever runs a stack calls it now and then, so that what one thread freed is not lost to
 * another that starves. */
void mbuf_thread_relieve(void);
/* Around fork, so that the child finds no lock held by a thread that it does not have. */
void mbuf_fork_prepare(void);
void mbuf_fork_done(void); /* in parent and child */
/* mbufs and storage now in use, whole process (gauges); exact while nobody allocates or frees. */
void mbuf_usage(int64_t *mbufs, int64_t *bytes);

struct mbuf_account *mbuf_account_create(int64_t limit_bytes) NODISCARD;
void mbuf_account_drop(struct mbuf_account *acct);
/* Bring acct's own fields up to date with what this thread did. */
void mbuf_account_settle(struct mbuf_account *acct);

/* --- allocation: NULL when refused (counted in acct->denied); the caller owns the result --- */
struct mbuf *mbuf_get(struct mbuf_account *acct) NODISCARD; /* inline storage, m_len 0 */
struct mbuf *
mbuf_get_packet(struct mbuf_account *acct) NODISCARD; /* M_PKTHDR, segs 1, MBUF_HEADROOM reserved */
/* Storage of at least `size` bytes (inline, 2K, 16K or 64K cluster: the smallest that fits; > 64K:
 * 64K). m_len 0, M_TAIL set. */
struct mbuf *mbuf_get_size(struct mbuf_account *acct, size_t size) NODISCARD;
/* The same for what an application stores. Refused in the last sixteenth of the account: that is
 * left to headers and to reception, without which nothing of what is stored would ever be
 * acknowledged and freed. */
struct mbuf *mbuf_get_data(struct mbuf_account *acct, size_t size) NODISCARD;
/* External storage: takes over one reference of e (dropped when the mbuf is freed; also when NULL
 * is returned the caller still owns it). */
struct mbuf *mbuf_get_ext(struct mbuf_account *acct, struct mbuf_ext *e, uint8_t *data,
                          uint32_t len, uint16_t flags) NODISCARD;
/* Prepare external storage: one reference, owned by the caller, and its size charged to acct until
 * free_fn was called for the last one. False: refused. */
bool mbuf_ext_init(struct mbuf_ext *e, struct mbuf_account *acct, uint8_t *buf, uint32_t size,
                   void (*free_fn)(struct mbuf_ext *)) NODISCARD;
void mbuf_ext_hold(struct mbuf_ext *e);
void mbuf_ext_drop(struct mbuf_ext *e);

struct mbuf *mbuf_free(struct mbuf *m); /* frees one, returns its m_next */
void mbuf_free_chain(
    struct mbuf **m); /* frees the chain (not m_nextpkt), nulls *m; *m may be NULL */

/* --- looking --- */
uint32_t mbuf_chain_len(const struct mbuf *m);
/* Memory a chain costs, headers and storage: the second budget of a socket buffer. A cluster counts
 * fully in each mbuf that refers to it only if it is more than half used by this mbuf, else m_len +
 * MBUF_SIZE. */
uint32_t mbuf_chain_mem(const struct mbuf *m);
uint32_t mbuf_mem(const struct mbuf *m);     /* of this one alone */
uint8_t *mbuf_start(const struct mbuf *m);   /* of the storage */
uint32_t mbuf_storage(const struct mbuf *m); /* bytes of storage */
uint32_t mbuf_leading(
    const struct mbuf *m); /* writable bytes in front of m_data, 0 if shared or read-only */
uint32_t mbuf_trailing(const struct mbuf *m); /* writable bytes behind the data */
bool mbuf_is_writable(const struct mbuf *m);
struct mbuf *mbuf_last(struct mbuf *m);

/* What was read of m's data is what was to be read. Asked after a copy of them, before the copy is
 * believed: the storage of M_VOLATILE data (a window on a file that somebody cuts) may have become
 * zeros meanwhile. Costs nothing for others. */
static inline bool mbuf_intact(const struct mbuf *m)
{
    if (likely(!(m->m_flags & M_VOLATILE)))
        return true;
    return m->m_ext->intact(m->m_ext, m->m_data, m->m_len);
}
/* Some of its storage is known to have vanished: a look at a flag, while mbuf_intact looks at what
 * was read. */
static inline bool mbuf_broken(const struct mbuf *m)
{
    return unlikely(m->m_flags & M_VOLATILE) && LOAD_RELAXED(&m->m_ext->broken);
}
bool mbuf_chain_broken(const struct mbuf *m);
bool mbuf_chain_intact(const struct mbuf *m);
bool mbuf_chain_is_volatile(const struct mbuf *m); /* any of it */

/* --- changing; lengths in m_pkt are kept right where the head has M_PKTHDR --- */
/* Make room for n bytes in front: uses leading space or prepends an mbuf (n <= MBUF_INLINE).
 * m_pkt's offsets (csum_start) are the caller's to adjust. NULL (chain freed) on failure. */
struct mbuf *mbuf_prepend(struct mbuf *m, uint32_t n) NODISCARD;
/* Make the first n bytes contiguous and private in the first mbuf. NULL (chain freed) when too
 * short or no memory. n <= MBUF_INLINE - MBUF_HEADROOM or already contiguous. */
struct mbuf *mbuf_pullup(struct mbuf *m, uint32_t n) NODISCARD;
void mbuf_trim_head(struct mbuf **m,
                    uint32_t n); /* drops n bytes; empty mbufs freed, but the packet header stays */
void mbuf_trim_tail(struct mbuf *m, uint32_t n);
/* Reference (never copy big storage) bytes [off, off+len) of the chain; bytes inside inline storage
 * are copied. NULL: no memory or out of range. */
struct mbuf *mbuf_ref(struct mbuf_account *acct, const struct mbuf *m, uint32_t off,
                      uint32_t len) NODISCARD;
/* Split after n bytes, 0 < n < length: *m keeps the first n, returns the rest (owned, without
 * M_PKTHDR); NULL on failure (chain unchanged). */
struct mbuf *mbuf_split(struct mbuf *m, uint32_t n) NODISCARD;
/* Append b's chain to a's (both owned by the caller; b consumed, what it says about its packet is
 * lost). */
void mbuf_cat(struct mbuf *a, struct mbuf *b);
/* Copy the M_VOLATILE data of a packet into storage of its own, for those who must read them twice
 * and find the same (a checksum in front of them). 0; -ENOMEM, or -EIO when they have vanished:
 * then the chain is freed and *m NULL. */
int mbuf_settle(struct mbuf **m) NODISCARD;
/* A private contiguous copy of the whole packet in one mbuf (<= 64 KB). NULL: no memory. */
struct mbuf *mbuf_dup_contiguous(struct mbuf_account *acct, const struct mbuf *m) NODISCARD;
void mbuf_copy_out(const struct mbuf *m, uint32_t off, uint32_t len,
                   void *dst); /* range must exist */
void mbuf_copy_in(struct mbuf *m, uint32_t off, uint32_t len,
                  const void *src); /* range must exist, writable */
/* A chain of len bytes from memory; big clusters for big lengths. NULL: no memory. */
struct mbuf *mbuf_from_bytes(struct mbuf_account *acct, const void *src, size_t len) NODISCARD;

#endif
