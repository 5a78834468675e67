/* Parser of record batches (format 2, decompressed) into Arrow buffers, without a Python object for each record.

   A RawBuilder appends to the buffers of its columns, which are byte strings, and returns them without a copy. Every
   length is checked against the remaining bytes of the record and of the batch. An invalid batch raises ValueError and
   leaves the builder unchanged. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../records/walk.h"

#define FIRST_CAPACITY 4096

typedef struct {
    PyObject *bytes; /* only the first `used` bytes are valid */
    Py_ssize_t used;
} Buffer;

typedef struct {
    Buffer ends;  /* int32: end of each value in `data`, after a leading 0 */
    Buffer data;
    Buffer valid; /* one byte for each value; packed to bits by take */
    Py_ssize_t nulls;
} Column;

typedef struct {
    PyObject_HEAD
    int wants_key, wants_value, wants_headers;
    Py_ssize_t rows;
    Buffer offsets;    /* int64 */
    Buffer timestamps; /* int64, microseconds */
    Column key, value;
    Column lists;      /* headers of a row: `data` is not used, `ends` counts headers */
    Column names, contents;
    Py_ssize_t headers;
} RawBuilder;

/* --- buffers */

static int reserve(Buffer *buffer, Py_ssize_t more)
{
    if (buffer->bytes == NULL) {
        Py_ssize_t capacity = more > FIRST_CAPACITY ? more : FIRST_CAPACITY;
        buffer->bytes = PyBytes_FromStringAndSize(NULL, capacity);
        return buffer->bytes == NULL ? -1 : 0;
    }
    Py_ssize_t capacity = PyBytes_GET_SIZE(buffer->bytes);
    if (more <= capacity - buffer->used)
        return 0;
    if (more > PY_SSIZE_T_MAX / 2 - capacity) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t wanted = buffer->used + more;
    if (wanted < 2 * capacity)
        wanted = 2 * capacity;
    return _PyBytes_Resize(&buffer->bytes, wanted);
}

static int put(Buffer *buffer, const void *data, Py_ssize_t size)
{
    if (reserve(buffer, size) < 0)
        return -1;
    if (size > 0)
        memcpy(PyBytes_AS_STRING(buffer->bytes) + buffer->used, data, (size_t)size);
    buffer->used += size;
    return 0;
}

static int put_int64(Buffer *buffer, int64_t value)
{
    return put(buffer, &value, 8);
}

static int put_end(Column *column, Py_ssize_t end)
{
    if (end > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "more than 2 GB of one column at once");
        return -1;
    }
    int32_t value = (int32_t)end;
    return put(&column->ends, &value, 4);
}

static int put_valid(Column *column, int is_valid)
{
    char flag = (char)is_valid;
    column->nulls += !is_valid;
    return put(&column->valid, &flag, 1);
}

/* Append a value, or null if `size` is negative. */
static int put_value(Column *column, const char *data, Py_ssize_t size)
{
    if (size > 0 && put(&column->data, data, size) < 0)
        return -1;
    if (put_end(column, column->data.used) < 0)
        return -1;
    return put_valid(column, size >= 0);
}

static void clear_buffer(Buffer *buffer)
{
    Py_CLEAR(buffer->bytes);
    buffer->used = 0;
}

static void clear_column(Column *column)
{
    clear_buffer(&column->ends);
    clear_buffer(&column->data);
    clear_buffer(&column->valid);
    column->nulls = 0;
}

static void clear_all(RawBuilder *self)
{
    clear_buffer(&self->offsets);
    clear_buffer(&self->timestamps);
    clear_column(&self->key);
    clear_column(&self->value);
    clear_column(&self->lists);
    clear_column(&self->names);
    clear_column(&self->contents);
    self->rows = self->headers = 0;
}

static int start_columns(RawBuilder *self)
{
    Column *columns[] = {&self->key, &self->value, &self->lists, &self->names, &self->contents};
    for (size_t place = 0; place < sizeof(columns) / sizeof(columns[0]); place++) {
        if (columns[place]->ends.used == 0 && put_end(columns[place], 0) < 0)
            return -1;
    }
    return 0;
}

/* --- appending */

static int is_ascii(const char *data, Py_ssize_t size)
{
    for (Py_ssize_t place = 0; place < size; place++) {
        if (data[place] & 0x80)
            return 0;
    }
    return 1;
}

/* Return 0 for valid UTF-8, which Arrow's strings require; otherwise set ValueError. */
static int check_name(const char *data, Py_ssize_t size)
{
    if (is_ascii(data, size))
        return 0;
    PyObject *text = PyUnicode_DecodeUTF8(data, size, "strict");
    Py_XDECREF(text);
    return text == NULL ? -1 : 0;
}

/* Append the headers of a record, or only check their names. Returns 0, or -1 with an exception set. */
static int append_headers(RawBuilder *self, Cursor *cursor, int64_t count, int is_wanted)
{
    for (int64_t place = 0; place < count; place++) {
        const unsigned char *name, *content;
        int64_t name_size, content_size;
        read_header(cursor, &name, &name_size, &content, &content_size);
        if (check_name((const char *)name, (Py_ssize_t)name_size) < 0)
            return -1;
        if (!is_wanted)
            continue;
        if (put_value(&self->names, (const char *)name, (Py_ssize_t)name_size) < 0 ||
            put_value(&self->contents, (const char *)content, (Py_ssize_t)content_size) < 0)
            return -1;
        self->headers++;
    }
    if (!is_wanted)
        return 0;
    if (put_end(&self->lists, self->headers) < 0)
        return -1;
    return put_valid(&self->lists, count > 0);
}

typedef struct {
    int64_t base_offset, base_timestamp, append_timestamp, first, end;
} Batch;

static int append_record(RawBuilder *self, const unsigned char *body, const Layout *layout, const Batch *batch)
{
    const char *key = (const char *)body + layout->key_start, *value = (const char *)body + layout->value_start;
    int64_t offset = (int64_t)((uint64_t)batch->base_offset + (uint64_t)layout->offset_delta);
    int is_wanted = offset >= batch->first && offset < batch->end;
    Cursor headers = {body + layout->headers_start, body + layout->end, 0};
    if (append_headers(self, &headers, layout->header_count, is_wanted && self->wants_headers) < 0)
        return -1;
    if (!is_wanted)
        return 0;
    uint64_t timestamp = batch->append_timestamp < 0
        ? (uint64_t)batch->base_timestamp + (uint64_t)layout->timestamp_delta
        : (uint64_t)batch->append_timestamp;
    if (put_int64(&self->offsets, offset) < 0 || put_int64(&self->timestamps, (int64_t)(timestamp * 1000)) < 0)
        return -1;
    if (self->wants_key && put_value(&self->key, key, (Py_ssize_t)layout->key_length) < 0)
        return -1;
    if (self->wants_value && put_value(&self->value, value, (Py_ssize_t)layout->value_length) < 0)
        return -1;
    self->rows++;
    return 0;
}

static int append_records(RawBuilder *self, const Py_buffer *body, Py_ssize_t count, const Batch *batch)
{
    const unsigned char *start = body->buf;
    Cursor cursor = {start, start + body->len, 0};
    for (Py_ssize_t place = 0; place < count; place++) {
        Layout layout;
        if (lay_out_record(&cursor, start, &layout) < 0)
            goto invalid;
        if (append_record(self, start, &layout, batch) < 0)
            return -1;
    }
    if (cursor.at == cursor.end)
        return 0;
invalid:
    PyErr_SetString(PyExc_ValueError, "the batch's records are not as long or as many as it says");
    return -1;
}

/* Sizes of a column before an append, to restore after a failure. */
typedef struct {
    Py_ssize_t ends, data, valid, nulls;
} ColumnMark;

static ColumnMark mark_of(const Column *column)
{
    ColumnMark mark = {column->ends.used, column->data.used, column->valid.used, column->nulls};
    return mark;
}

static void take_back(Column *column, ColumnMark mark)
{
    column->ends.used = mark.ends;
    column->data.used = mark.data;
    column->valid.used = mark.valid;
    column->nulls = mark.nulls;
}

static PyObject *builder_append(RawBuilder *self, PyObject *arguments)
{
    Py_buffer body;
    Py_ssize_t count;
    Batch batch;
    long long base_offset, base_timestamp, append_timestamp, first, end;
    if (!PyArg_ParseTuple(arguments, "y*nLLLLL", &body, &count, &base_offset, &base_timestamp, &append_timestamp,
                          &first, &end))
        return NULL;
    batch.base_offset = base_offset;
    batch.base_timestamp = base_timestamp;
    batch.append_timestamp = append_timestamp;
    batch.first = first;
    batch.end = end;
    int result = start_columns(self);
    if (result == 0) {
        Column *columns[] = {&self->key, &self->value, &self->lists, &self->names, &self->contents};
        ColumnMark marks[5];
        Py_ssize_t offsets = self->offsets.used, timestamps = self->timestamps.used;
        Py_ssize_t rows = self->rows, headers = self->headers;
        for (int place = 0; place < 5; place++)
            marks[place] = mark_of(columns[place]);
        result = append_records(self, &body, count, &batch);
        if (result < 0) {
            for (int place = 0; place < 5; place++)
                take_back(columns[place], marks[place]);
            self->offsets.used = offsets;
            self->timestamps.used = timestamps;
            self->rows = rows;
            self->headers = headers;
        }
    }
    PyBuffer_Release(&body);
    if (result < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* --- taking */

static PyObject *take_buffer(Buffer *buffer)
{
    if (buffer->bytes == NULL)
        return PyBytes_FromStringAndSize(NULL, 0);
    if (_PyBytes_Resize(&buffer->bytes, buffer->used) < 0)
        return NULL;
    PyObject *taken = buffer->bytes;
    buffer->bytes = NULL;
    buffer->used = 0;
    return taken;
}

static PyObject *take_valid(Column *column)
{
    if (column->nulls == 0)
        Py_RETURN_NONE;
    Py_ssize_t count = column->valid.used;
    PyObject *packed = PyBytes_FromStringAndSize(NULL, (count + 7) / 8);
    if (packed == NULL)
        return NULL;
    char *bits = PyBytes_AS_STRING(packed);
    const char *flags = PyBytes_AS_STRING(column->valid.bytes);
    memset(bits, 0, (size_t)((count + 7) / 8));
    for (Py_ssize_t place = 0; place < count; place++)
        bits[place / 8] |= (char)(flags[place] << (place % 8));
    return packed;
}

/* Build the tuple (validity or None, ends, data, number of nulls). */
static PyObject *take_column(Column *column)
{
    Py_ssize_t nulls = column->nulls;
    PyObject *valid = take_valid(column);
    PyObject *ends = valid == NULL ? NULL : take_buffer(&column->ends);
    PyObject *data = ends == NULL ? NULL : take_buffer(&column->data);
    if (data == NULL) {
        Py_XDECREF(valid);
        Py_XDECREF(ends);
        return NULL;
    }
    return Py_BuildValue("(NNNn)", valid, ends, data, nulls);
}

static PyObject *builder_take(RawBuilder *self, PyObject *Py_UNUSED(ignored))
{
    if (start_columns(self) < 0)
        return NULL;
    PyObject *result = NULL;
    PyObject *parts[7] = {NULL};
    Py_ssize_t headers = self->headers;
    parts[0] = take_buffer(&self->offsets);
    parts[1] = take_buffer(&self->timestamps);
    Column *columns[] = {&self->key, &self->value, &self->lists, &self->names, &self->contents};
    for (int place = 0; place < 5; place++)
        parts[2 + place] = take_column(columns[place]);
    int is_whole = 1;
    for (int place = 0; place < 7; place++)
        is_whole &= parts[place] != NULL;
    if (is_whole)
        result = Py_BuildValue("(OOOOOOOn)", parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6],
                               headers);
    for (int place = 0; place < 7; place++)
        Py_XDECREF(parts[place]);
    clear_all(self);
    return result;
}

static PyObject *builder_rows(RawBuilder *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(self->rows);
}

static PyObject *builder_size(RawBuilder *self, void *Py_UNUSED(closure))
{
    Py_ssize_t size = self->key.data.used + self->value.data.used + self->contents.data.used + 16 * self->rows;
    return PyLong_FromSsize_t(size);
}

/* --- the type */

static int builder_init(RawBuilder *self, PyObject *arguments, PyObject *Py_UNUSED(keywords))
{
    clear_all(self);
    return PyArg_ParseTuple(arguments, "ppp", &self->wants_key, &self->wants_value, &self->wants_headers) ? 0 : -1;
}

static void builder_dealloc(RawBuilder *self)
{
    PyTypeObject *type = Py_TYPE(self);
    clear_all(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef builder_methods[] = {
    {"append", (PyCFunction)builder_append, METH_VARARGS,
     "append(body, record_count, base_offset, base_timestamp, append_timestamp, first_offset, end_offset)"},
    {"take", (PyCFunction)builder_take, METH_NOARGS, "Return the buffers and reset the builder."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef builder_properties[] = {
    {"rows", (getter)builder_rows, NULL, NULL, NULL},
    {"size_bytes", (getter)builder_size, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot builder_slots[] = {
    {Py_tp_init, builder_init},
    {Py_tp_dealloc, builder_dealloc},
    {Py_tp_methods, builder_methods},
    {Py_tp_getset, builder_properties},
    {0, NULL},
};

static PyType_Spec builder_spec = {
    .name = "penstock.pipeline._decoder.RawBuilder",
    .basicsize = sizeof(RawBuilder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = builder_slots,
};

static int module_exec(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&builder_spec);
    if (type == NULL)
        return -1;
    int result = PyModule_AddObjectRef(module, "RawBuilder", type);
    Py_DECREF(type);
    return result;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_decoder",
    .m_doc = "Record batches to Arrow's buffers.",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__decoder(void)
{
    return PyModuleDef_Init(&module_definition);
}
