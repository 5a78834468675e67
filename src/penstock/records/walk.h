/* Walk over the records of a batch (format 2, decompressed): the layout of each record, without Python objects.

   Every length is checked against the remaining bytes of the record and of the body, whatever the bytes are. Nothing
   here needs the GIL. */

#ifndef PENSTOCK_WALK_H
#define PENSTOCK_WALK_H

#include <stdint.h>

/* Places in the body of a batch. A length of -1 is null. The Python form is `walking.LAYOUT`. */
typedef struct {
    int64_t start, end; /* of the record, its length field included */
    int64_t timestamp_delta, offset_delta;
    int64_t key_start, key_length;
    int64_t value_start, value_length;
    int64_t headers_start, header_count; /* first header, behind the count */
} Layout;

/* A failed cursor stays failed. */
typedef struct {
    const unsigned char *at, *end;
    int has_failed;
} Cursor;

static inline int64_t read_varint(Cursor *cursor, int most_bytes)
{
    uint64_t value = 0;
    for (int place = 0; place < most_bytes; place++) {
        if (cursor->at >= cursor->end)
            break;
        unsigned char byte = *cursor->at++;
        if (place == 9 && byte > 1)
            break; /* more than 64 bits */
        value |= (uint64_t)(byte & 0x7F) << (7 * place);
        if (!(byte & 0x80))
            return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
    }
    cursor->has_failed = 1;
    return 0;
}

static inline int64_t read_int(Cursor *cursor)
{
    int64_t value = read_varint(cursor, 5);
    if (value < INT32_MIN || value > INT32_MAX)
        cursor->has_failed = 1;
    return value;
}

/* Read a field: returns its length, or -1 for null, and points `data` at it. */
static inline int64_t read_field(Cursor *cursor, const unsigned char **data)
{
    int64_t size = read_int(cursor);
    *data = cursor->at;
    if (cursor->has_failed || size < -1 || size > cursor->end - cursor->at) {
        cursor->has_failed = 1;
        return -1;
    }
    if (size > 0)
        cursor->at += size;
    return size;
}

/* Read name and value of a header; the name is never null. */
static inline void read_header(Cursor *cursor, const unsigned char **name, int64_t *name_size,
                               const unsigned char **value, int64_t *value_size)
{
    *name_size = read_field(cursor, name);
    *value_size = read_field(cursor, value);
    if (*name_size < 0)
        cursor->has_failed = 1;
}

/* Lay out the record at the cursor, which moves behind it. Returns 0, or -1 if no valid record is there. */
static inline int lay_out_record(Cursor *body, const unsigned char *start, Layout *layout)
{
    layout->start = body->at - start;
    int64_t size = read_int(body);
    if (body->has_failed || size < 1 || size > body->end - body->at)
        return -1;
    Cursor record = {body->at + 1, body->at + size, 0}; /* the attributes of a record are unused */
    const unsigned char *key, *value, *name, *content;
    layout->timestamp_delta = read_varint(&record, 10);
    layout->offset_delta = read_int(&record);
    layout->key_length = read_field(&record, &key);
    layout->value_length = read_field(&record, &value);
    int64_t count = read_int(&record);
    if (record.has_failed || count < 0 || count > (record.end - record.at) / 2)
        return -1;
    layout->key_start = key - start;
    layout->value_start = value - start;
    layout->headers_start = record.at - start;
    layout->header_count = count;
    for (int64_t place = 0; place < count && !record.has_failed; place++) {
        int64_t name_size, content_size;
        read_header(&record, &name, &name_size, &content, &content_size);
    }
    if (record.has_failed || record.at != record.end)
        return -1;
    body->at += size;
    layout->end = body->at - start;
    return 0;
}

#endif
