/* SPDX-License-Identifier: BSD-2-Clause
 * mbufs: allocation, and the operations on chains. */
#include "mbuf.h"

#include "pool.h"

/* m_class of a header in use and of one in the pool: a second free is found at once. */
#define MBUF_LIVE 0x6d62
#define MBUF_FREE 0xdead

#define EXT_COST(size) ((int64_t)(size) + POOL_EXT_ROOM)

_Static_assert(MBUF_INLINE == 168, "what the copying thresholds were chosen for");
_Static_assert(MBUF_INLINE >= MBUF_HEADROOM + 60, "headers of TCP with all options fit inline");

/* --- allocation --- */

static void mbuf_setup(struct mbuf *m, struct mbuf_account *acct)
{
    m->m_next = NULL;
    m->m_nextpkt = NULL;
    m->m_data = m->m_dat;
    m->m_len = 0;
    m->m_flags = 0;
    m->m_class = MBUF_LIVE;
    m->m_ext = NULL;
    m->m_account = acct;
}

struct mbuf *mbuf_get(struct mbuf_account *acct)
{
    if (unlikely(!account_charge(acct, MBUF_SIZE, 1)))
        return NULL;
    struct mbuf *m = pool_get(POOL_MBUF);
    if (unlikely(m == NULL)) {
        account_credit(acct, MBUF_SIZE, 1);
        account_denied(acct);
        return NULL;
    }
    mbuf_setup(m, acct);
    return m;
}

struct mbuf *mbuf_get_packet(struct mbuf_account *acct)
{
    struct mbuf *m = mbuf_get(acct);
    if (likely(m != NULL)) {
        m->m_flags = M_PKTHDR;
        m->m_data += MBUF_HEADROOM;
        m->m_pkt = (struct mbuf_pkt){.segs = 1};
    }
    return m;
}

static uint32_t cluster_bytes(enum pool_kind kind)
{
    static const uint32_t bytes[POOL_COUNT] = {0, CLUSTER_SIZE, BIGCLUSTER_16K, BIGCLUSTER_64K};
    return bytes[kind];
}

static struct mbuf *get_cluster(struct mbuf_account *acct, enum pool_kind kind)
{
    uint32_t size = cluster_bytes(kind);
    int64_t cost = MBUF_SIZE + EXT_COST(size);
    if (unlikely(!account_charge(acct, cost, 1)))
        return NULL;
    struct mbuf *m = pool_get(POOL_MBUF);
    struct mbuf_ext *e = m != NULL ? pool_get(kind) : NULL;
    if (unlikely(e == NULL)) {
        if (m != NULL)
            pool_put(POOL_MBUF, m);
        account_credit(acct, cost, 1);
        account_denied(acct);
        return NULL;
    }
    atomic_init(&e->refs, 1);
    e->size = size;
    e->buf = (uint8_t *)e + POOL_EXT_ROOM;
    e->free = NULL;
    e->account = acct;
    e->kind = kind;
    mbuf_setup(m, acct);
    m->m_flags = M_EXT | M_TAIL;
    m->m_ext = e;
    m->m_data = e->buf;
    return m;
}

struct mbuf *mbuf_get_size(struct mbuf_account *acct, size_t size)
{
    if (size <= MBUF_INLINE)
        return mbuf_get(acct);
    if (size <= CLUSTER_SIZE)
        return get_cluster(acct, POOL_2K);
    return get_cluster(acct, size <= BIGCLUSTER_16K ? POOL_16K : POOL_64K);
}

struct mbuf *mbuf_get_data(struct mbuf_account *acct, size_t size)
{
    int64_t limit = LOAD_RELAXED(&acct->limit);

    if (unlikely(LOAD_RELAXED(&acct->bytes) > limit - limit / 16)) {
        account_denied(acct);
        return NULL;
    }
    return mbuf_get_size(acct, size);
}

struct mbuf *mbuf_get_ext(struct mbuf_account *acct, struct mbuf_ext *e, uint8_t *data,
                          uint32_t len, uint16_t flags)
{
    CHECK(data >= e->buf && len <= e->size - (size_t)(data - e->buf));
    struct mbuf *m = mbuf_get(acct);
    if (unlikely(m == NULL))
        return NULL;
    m->m_flags = flags | M_EXT;
    m->m_ext = e;
    m->m_data = data;
    m->m_len = len;
    return m;
}

bool mbuf_ext_init(struct mbuf_ext *e, struct mbuf_account *acct, uint8_t *buf, uint32_t size,
                   void (*free_fn)(struct mbuf_ext *))
{
    CHECK(free_fn != NULL);
    if (!account_charge(acct, size, 0))
        return false;
    atomic_init(&e->refs, 1);
    e->size = size;
    e->buf = buf;
    e->free = free_fn;
    e->account = acct;
    e->kind = POOL_MBUF; /* no kind of cluster */
    atomic_init(&e->broken, 0);
    e->intact = NULL;
    return true;
}

void mbuf_ext_hold(struct mbuf_ext *e)
{
    uint32_t old = atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    CHECK(old > 0 && old < UINT32_MAX / 2);
}

/* --- freeing: credits are gathered, so that a chain costs one update of its account --- */

struct credit {
    struct mbuf_account *acct;
    int64_t bytes, mbufs;
};

static inline void credit_add(struct credit *c, struct mbuf_account *acct, int64_t bytes,
                              int64_t mbufs)
{
    if (unlikely(acct != c->acct)) {
        account_credit(c->acct, c->bytes, c->mbufs);
        *c = (struct credit){.acct = acct};
    }
    c->bytes += bytes;
    c->mbufs += mbufs;
}

static void ext_drop(struct mbuf_ext *e, struct credit *c)
{
    /* The only holder needs no locked instruction: nobody else can add a reference. */
    if (atomic_load_explicit(&e->refs, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1)
        return;
    struct mbuf_account *acct = e->account;
    if (likely(e->kind != POOL_MBUF)) {
        credit_add(c, acct, EXT_COST(e->size), 0);
        pool_put((enum pool_kind)e->kind, e);
    } else {
        int64_t size = e->size;
        e->free(e);
        credit_add(c, acct, size, 0);
    }
}

static struct mbuf *free_one(struct mbuf *m, struct credit *c)
{
    CHECK(m->m_class == MBUF_LIVE);
    struct mbuf *next = m->m_next;
    if (m->m_flags & M_EXT)
        ext_drop(m->m_ext, c);
    credit_add(c, m->m_account, MBUF_SIZE, 1);
    m->m_class = MBUF_FREE;
    pool_put(POOL_MBUF, m);
    return next;
}

void mbuf_ext_drop(struct mbuf_ext *e)
{
    struct credit c = {.acct = e->account};
    ext_drop(e, &c);
    account_credit(c.acct, c.bytes, c.mbufs);
}

struct mbuf *mbuf_free(struct mbuf *m)
{
    struct credit c = {.acct = m->m_account};
    struct mbuf *next = free_one(m, &c);
    account_credit(c.acct, c.bytes, c.mbufs);
    return next;
}

void mbuf_free_chain(struct mbuf **mp)
{
    struct mbuf *m = *mp;
    *mp = NULL;
    if (m == NULL)
        return;
    struct credit c = {.acct = m->m_account};
    while (m != NULL)
        m = free_one(m, &c);
    account_credit(c.acct, c.bytes, c.mbufs);
}

/* --- looking --- */

uint32_t mbuf_chain_len(const struct mbuf *m)
{
    uint32_t len = 0;
    for (; m != NULL; m = m->m_next)
        len += m->m_len;
    return len;
}

uint32_t mbuf_mem(const struct mbuf *m)
{
    if (!(m->m_flags & M_EXT))
        return MBUF_SIZE;
    uint32_t size = m->m_ext->size;
    return MBUF_SIZE + (m->m_len > size / 2 ? size : m->m_len);
}

uint32_t mbuf_chain_mem(const struct mbuf *m)
{
    uint32_t mem = 0;
    for (; m != NULL; m = m->m_next)
        mem += mbuf_mem(m);
    return mem;
}

uint8_t *mbuf_start(const struct mbuf *m)
{
    return m->m_flags & M_EXT ? m->m_ext->buf : (uint8_t *)(uintptr_t)m->m_dat;
}

uint32_t mbuf_storage(const struct mbuf *m)
{
    return m->m_flags & M_EXT ? m->m_ext->size : (uint32_t)MBUF_INLINE;
}

bool mbuf_is_writable(const struct mbuf *m)
{
    if (m->m_flags & M_RDONLY)
        return false;
    return !(m->m_flags & M_EXT) ||
           atomic_load_explicit(&m->m_ext->refs, memory_order_acquire) == 1;
}

uint32_t mbuf_leading(const struct mbuf *m)
{
    return mbuf_is_writable(m) ? (uint32_t)(m->m_data - mbuf_start(m)) : 0;
}

/* With M_TAIL the bytes behind the data are this mbuf's alone, though others refer to bytes in
 * front. */
uint32_t mbuf_trailing(const struct mbuf *m)
{
    if (m->m_flags & M_RDONLY || !(m->m_flags & M_TAIL || mbuf_is_writable(m)))
        return 0;
    return mbuf_storage(m) - (uint32_t)(m->m_data - mbuf_start(m)) - m->m_len;
}

bool mbuf_chain_broken(const struct mbuf *m)
{
    for (; m != NULL; m = m->m_next)
        if (mbuf_broken(m))
            return true;
    return false;
}

bool mbuf_chain_intact(const struct mbuf *m)
{
    for (; m != NULL; m = m->m_next)
        if (unlikely(!mbuf_intact(m)))
            return false;
    return true;
}

bool mbuf_chain_is_volatile(const struct mbuf *m)
{
    for (; m != NULL; m = m->m_next)
        if (unlikely(m->m_flags & M_VOLATILE))
            return true;
    return false;
}

struct mbuf *mbuf_last(struct mbuf *m)
{
    while (m->m_next != NULL)
        m = m->m_next;
    return m;
}

/* --- changing --- */

/* Flags that belong to the packet, not to an mbuf's storage. */
#define PACKET_FLAGS (M_PKTHDR | M_BCAST | M_MCAST | M_LOOP)

/* A new first mbuf in front of m, with what m says about the packet; room for n bytes at its end.
 */
static struct mbuf *new_head(struct mbuf *m, uint32_t n)
{
    CHECK(n <= MBUF_INLINE);
    struct mbuf *h = mbuf_get(m->m_account);
    if (h == NULL)
        return NULL;
    if (m->m_flags & M_PKTHDR)
        h->m_pkt = m->m_pkt;
    h->m_flags = m->m_flags & PACKET_FLAGS;
    m->m_flags &= (uint16_t)~PACKET_FLAGS;
    h->m_data = h->m_dat + MBUF_INLINE - n;
    h->m_next = m;
    h->m_nextpkt = m->m_nextpkt;
    m->m_nextpkt = NULL;
    return h;
}

struct mbuf *mbuf_prepend(struct mbuf *m, uint32_t n)
{
    if (unlikely(mbuf_leading(m) < n)) {
        struct mbuf *h = new_head(m, n);
        if (h == NULL) {
            mbuf_free_chain(&m);
            return NULL;
        }
        h->m_len = n;
        m = h;
    } else {
        m->m_data -= n;
        m->m_len += n;
    }
    if (m->m_flags & M_PKTHDR)
        m->m_pkt.len += n;
    return m;
}

/* Move the next n bytes of the chain behind m to the end of m's data, where there is room. False:
 * too short. */
static bool pull_into(struct mbuf *m, uint32_t n)
{
    while (n > 0) {
        struct mbuf *next = m->m_next;
        if (next == NULL)
            return false;
        uint32_t k = MIN(n, next->m_len);
        memcpy(m->m_data + m->m_len, next->m_data, k);
        if (unlikely(!mbuf_intact(next)))
            return false;
        m->m_len += k;
        next->m_data += k;
        next->m_len -= k;
        n -= k;
        if (next->m_len == 0)
            m->m_next = mbuf_free(next);
    }
    return true;
}

struct mbuf *mbuf_pullup(struct mbuf *m, uint32_t n)
{
    const uint32_t room = MBUF_INLINE - MBUF_HEADROOM;
    if (likely(m->m_len >= n && (n > room || mbuf_is_writable(m))))
        return m;
    if (m->m_len < n && mbuf_is_writable(m) && mbuf_trailing(m) >= n - m->m_len) {
        if (pull_into(m, n - m->m_len))
            return m;
    } else {
        CHECK(n <= room);
        struct mbuf *h = new_head(m, n);
        if (h != NULL) {
            if (pull_into(h, n))
                return h;
            m = h;
        }
    }
    mbuf_free_chain(&m);
    return NULL;
}

void mbuf_trim_head(struct mbuf **mp, uint32_t n)
{
    struct mbuf *m = *mp;
    bool packet = m->m_flags & M_PKTHDR;
    if (packet) {
        CHECK(m->m_pkt.len >= n);
        m->m_pkt.len -= n;
    }
    if (likely(n < m->m_len)) {
        m->m_data += n;
        m->m_len -= n;
        return;
    }
    struct mbuf **where = mp;
    if (packet) {
        n -= m->m_len;
        m->m_data += m->m_len;
        m->m_len = 0;
        where = &m->m_next;
    }
    while ((m = *where) != NULL && n >= m->m_len) {
        n -= m->m_len;
        struct mbuf *nextpkt = m->m_nextpkt;
        *where = mbuf_free(m);
        if (!packet && *where != NULL)
            (*where)->m_nextpkt = nextpkt;
    }
    if (n > 0) {
        CHECK(m != NULL);
        m->m_data += n;
        m->m_len -= n;
    }
}

void mbuf_trim_tail(struct mbuf *m, uint32_t n)
{
    uint32_t len = mbuf_chain_len(m);
    CHECK(len >= n);
    if (n == 0)
        return;
    len -= n;
    if (m->m_flags & M_PKTHDR)
        m->m_pkt.len = len;
    /* The mbuf in which the last byte that stays lies; the first one stays in any case. */
    while (len > m->m_len) {
        len -= m->m_len;
        m = m->m_next;
    }
    if (len < m->m_len && !mbuf_is_writable(m))
        m->m_flags &= (uint16_t)~M_TAIL; /* others may see the bytes that are behind the data now */
    m->m_len = len;
    mbuf_free_chain(&m->m_next);
}

/* Bytes [off, off+len) of one mbuf in a new one: a reference, or a copy where that is as cheap. */
static struct mbuf *ref_one(struct mbuf_account *acct, const struct mbuf *m, uint32_t off,
                            uint32_t len)
{
    struct mbuf *n = mbuf_get(acct);
    if (unlikely(n == NULL))
        return NULL;
    n->m_len = len;
    if (len <= MBUF_INLINE && (len <= 64 || !(m->m_flags & M_EXT)) && !(m->m_flags & M_VOLATILE)) {
        memcpy(n->m_dat, m->m_data + off, len);
    } else {
        mbuf_ext_hold(m->m_ext);
        n->m_flags = M_EXT | (m->m_flags & (M_RDONLY | M_VOLATILE));
        n->m_ext = m->m_ext;
        n->m_data = m->m_data + off;
    }
    return n;
}

/* For mbufs of a socket buffer, whose last one its producer goes on filling. */
static inline uint32_t shared_len(const struct mbuf *m)
{
    return __atomic_load_n(&m->m_len, __ATOMIC_RELAXED);
}

static inline const struct mbuf *shared_next(const struct mbuf *m)
{
    return __atomic_load_n(&m->m_next, __ATOMIC_ACQUIRE);
}

struct mbuf *mbuf_ref(struct mbuf_account *acct, const struct mbuf *m, uint32_t off, uint32_t len)
{
    struct mbuf *head = NULL, **tail = &head;
    while (m != NULL && off >= shared_len(m) && !(len == 0 && off == shared_len(m))) {
        off -= shared_len(m);
        m = shared_next(m);
    }
    if (len == 0)
        return m != NULL ? mbuf_get(acct) : NULL;
    while (true) {
        if (m == NULL)
            goto fail;
        uint32_t n = shared_len(m) - off;
        n = MIN(len, n);
        if (n > 0) {
            *tail = ref_one(acct, m, off, n);
            if (*tail == NULL)
                goto fail;
            tail = &(*tail)->m_next;
            len -= n;
        }
        if (len == 0)
            return head;
        m = shared_next(m);
        off = 0;
    }
fail:
    mbuf_free_chain(&head);
    return NULL;
}

struct mbuf *mbuf_split(struct mbuf *m, uint32_t n)
{
    struct mbuf *head = m, *rest;
    uint32_t left = n;
    CHECK(n > 0);
    while (left > m->m_len) {
        left -= m->m_len;
        m = m->m_next;
        CHECK(m != NULL);
    }
    if (left == m->m_len) {
        rest = m->m_next;
        CHECK(rest != NULL); /* something must be left */
    } else {
        rest = ref_one(m->m_account, m, left, m->m_len - left);
        if (rest == NULL)
            return NULL;
        rest->m_next = m->m_next;
        rest->m_flags |= m->m_flags & (M_EOR | M_OOB);
        if (rest->m_flags & M_EXT) { /* the right to append goes with the end of the data */
            rest->m_flags |= m->m_flags & M_TAIL;
            m->m_flags &= (uint16_t)~M_TAIL;
        }
        m->m_flags &= (uint16_t) ~(M_EOR | M_OOB);
        m->m_len = left;
    }
    m->m_next = NULL;
    if (head->m_flags & M_PKTHDR)
        head->m_pkt.len = n;
    return rest;
}

void mbuf_cat(struct mbuf *a, struct mbuf *b)
{
    if (a->m_flags & M_PKTHDR)
        a->m_pkt.len += b->m_flags & M_PKTHDR ? b->m_pkt.len : mbuf_chain_len(b);
    b->m_flags &= (uint16_t)~PACKET_FLAGS;
    mbuf_last(a)->m_next = b;
}

/* m's data in a new mbuf, which takes its place. 0, -ENOMEM, -EIO. */
static int settle_one(struct mbuf **where)
{
    struct mbuf *m = *where;
    struct mbuf *n = mbuf_get_size(m->m_account, m->m_len);
    if (n == NULL)
        return -ENOMEM;
    memcpy(n->m_data, m->m_data, m->m_len);
    n->m_len = m->m_len;
    n->m_flags |= m->m_flags & (PACKET_FLAGS | M_EOR | M_OOB);
    n->m_pkt = m->m_pkt;
    n->m_next = m->m_next;
    n->m_nextpkt = m->m_nextpkt;
    *where = n;
    bool intact = mbuf_intact(m);
    (void)mbuf_free(m);
    return intact ? 0 : -EIO;
}

int mbuf_settle(struct mbuf **mp)
{
    for (struct mbuf **where = mp; *where != NULL; where = &(*where)->m_next) {
        if (likely(!((*where)->m_flags & M_VOLATILE)))
            continue;
        int error = (*where)->m_len > BIGCLUSTER_64K ? -ENOMEM : settle_one(where);
        if (error) {
            mbuf_free_chain(mp);
            return error;
        }
    }
    return 0;
}

struct mbuf *mbuf_dup_contiguous(struct mbuf_account *acct, const struct mbuf *m)
{
    uint32_t len = mbuf_chain_len(m);
    if (len > BIGCLUSTER_64K)
        return NULL;
    uint32_t headroom = MIN((uint32_t)MBUF_HEADROOM, BIGCLUSTER_64K - len);
    struct mbuf *d = mbuf_get_size(acct, len + headroom);
    if (d == NULL)
        return NULL;
    d->m_data += headroom;
    d->m_len = len;
    mbuf_copy_out(m, 0, len, d->m_data);
    if (unlikely(!mbuf_chain_intact(m))) {
        mbuf_free_chain(&d);
        return NULL;
    }
    if (m->m_flags & M_PKTHDR)
        d->m_pkt = m->m_pkt;
    d->m_flags |= m->m_flags & PACKET_FLAGS;
    return d;
}

void mbuf_copy_out(const struct mbuf *m, uint32_t off, uint32_t len, void *dst)
{
    uint8_t *d = dst;
    while (len > 0) {
        CHECK(m != NULL);
        uint32_t have = shared_len(m);
        if (off >= have) {
            off -= have;
            m = shared_next(m);
            continue;
        }
        uint32_t n = MIN(len, have - off);
        memcpy(d, m->m_data + off, n);
        d += n;
        len -= n;
        off += n;
    }
}

void mbuf_copy_in(struct mbuf *m, uint32_t off, uint32_t len, const void *src)
{
    const uint8_t *s = src;
    for (; len > 0; m = m->m_next) {
        CHECK(m != NULL);
        if (off >= m->m_len) {
            off -= m->m_len;
            continue;
        }
        uint32_t n = MIN(len, m->m_len - off);
        CHECK(mbuf_is_writable(m));
        memcpy(m->m_data + off, s, n);
        s += n;
        len -= n;
        off = 0;
    }
}

struct mbuf *mbuf_from_bytes(struct mbuf_account *acct, const void *src, size_t len)
{
    const uint8_t *s = src;
    struct mbuf *head = NULL, **tail = &head;
    do {
        struct mbuf *m = mbuf_get_size(acct, len);
        if (m == NULL) {
            mbuf_free_chain(&head);
            return NULL;
        }
        uint32_t n = (uint32_t)MIN(len, (size_t)mbuf_storage(m));
        if (n > 0)
            memcpy(m->m_data, s, n);
        m->m_len = n;
        s += n;
        len -= n;
        *tail = m;
        tail = &m->m_next;
    } while (len > 0);
    return head;
}
