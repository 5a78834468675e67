/* JSON documents without Python objects: a strict check of a document, and the value at a path of field names.

   The check accepts nothing that `msgspec.json.decode` refuses. It gives up on documents that are rare and hard: deep
   nesting, surrogate escapes, integers of more than 18 digits, large exponents. Nothing here needs the GIL. */

#ifndef PENSTOCK_JSON_PATH_H
#define PENSTOCK_JSON_PATH_H

#include <stdint.h>
#include <string.h>

#define JSON_MAX_DEPTH 32
#define JSON_MAX_DIGITS 18
#define JSON_MAX_FRACTION 200
#define JSON_MAX_EXPONENT_DIGITS 2

typedef struct {
    const unsigned char *at, *end;
} Json;

static inline void json_skip_space(Json *json)
{
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\n' || *json->at == '\t' || *json->at == '\r'))
        json->at++;
}

static inline int json_take(Json *json, unsigned char wanted)
{
    json_skip_space(json);
    if (json->at >= json->end || *json->at != wanted)
        return 0;
    json->at++;
    return 1;
}

/* --- check: every function returns 0, or -1 to give up */

/* Check a character of more than one byte: no overlong form, no surrogate, nothing beyond U+10FFFF. */
static int json_check_character(Json *json)
{
    const unsigned char *at = json->at;
    int64_t left = json->end - at;
    int size = *at >= 0xF0 ? 4 : *at >= 0xE0 ? 3 : 2;
    if (*at < 0xC2 || *at > 0xF4 || left < size)
        return -1;
    for (int place = 1; place < size; place++) {
        if ((at[place] & 0xC0) != 0x80)
            return -1;
    }
    if ((*at == 0xE0 && at[1] < 0xA0) || (*at == 0xED && at[1] > 0x9F) || (*at == 0xF0 && at[1] < 0x90) ||
        (*at == 0xF4 && at[1] > 0x8F))
        return -1;
    json->at += size;
    return 0;
}

static int json_hex(unsigned char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Check what follows a backslash. */
static int json_check_escape(Json *json)
{
    if (json->at >= json->end)
        return -1;
    unsigned char kind = *json->at++;
    if (kind != 'u')
        return kind != 0 && strchr("\"\\/bfnrt", kind) != NULL ? 0 : -1;
    if (json->end - json->at < 4)
        return -1;
    int code = 0;
    for (int place = 0; place < 4; place++) {
        int digit = json_hex(*json->at++);
        if (digit < 0)
            return -1;
        code = code << 4 | digit;
    }
    return code >= 0xD800 && code <= 0xDFFF ? -1 : 0;
}

/* Check a string behind its first quote. */
static int json_check_string(Json *json)
{
    while (json->at < json->end) {
        unsigned char byte = *json->at;
        if (byte >= 0x80) {
            if (json_check_character(json) < 0)
                return -1;
            continue;
        }
        json->at++;
        if (byte == '"')
            return 0;
        if (byte < 0x20 || (byte == '\\' && json_check_escape(json) < 0))
            return -1;
    }
    return -1;
}

static inline int json_skip_digits(Json *json)
{
    const unsigned char *start = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9')
        json->at++;
    return (int)(json->at - start > JSON_MAX_FRACTION ? JSON_MAX_FRACTION + 1 : json->at - start);
}

static int json_check_number(Json *json)
{
    if (*json->at == '-')
        json->at++;
    const unsigned char *start = json->at;
    int digits = json_skip_digits(json);
    if (digits < 1 || digits > JSON_MAX_DIGITS || (digits > 1 && *start == '0'))
        return -1;
    if (json->at < json->end && *json->at == '.') {
        json->at++;
        digits = json_skip_digits(json);
        if (digits < 1 || digits > JSON_MAX_FRACTION)
            return -1;
    }
    if (json->at < json->end && (*json->at | 0x20) == 'e') {
        json->at++;
        if (json->at < json->end && (*json->at == '-' || *json->at == '+'))
            json->at++;
        digits = json_skip_digits(json);
        if (digits < 1 || digits > JSON_MAX_EXPONENT_DIGITS)
            return -1;
    }
    return 0;
}

static int json_check_word(Json *json, const char *word)
{
    int64_t size = (int64_t)strlen(word);
    if (json->end - json->at < size || memcmp(json->at, word, (size_t)size) != 0)
        return -1;
    json->at += size;
    return 0;
}

static int json_check_value(Json *json, int depth);

static int json_check_members(Json *json, int depth, int is_object)
{
    unsigned char close = is_object ? '}' : ']';
    if (depth >= JSON_MAX_DEPTH)
        return -1;
    if (json_take(json, close))
        return 0;
    do {
        if (is_object && (!json_take(json, '"') || json_check_string(json) < 0 || !json_take(json, ':')))
            return -1;
        if (json_check_value(json, depth + 1) < 0)
            return -1;
    } while (json_take(json, ','));
    return json_take(json, close) ? 0 : -1;
}

static int json_check_value(Json *json, int depth)
{
    json_skip_space(json);
    if (json->at >= json->end)
        return -1;
    switch (*json->at) {
    case '{':
    case '[':
        json->at++;
        return json_check_members(json, depth, json->at[-1] == '{');
    case '"':
        json->at++;
        return json_check_string(json);
    case 't':
        return json_check_word(json, "true");
    case 'f':
        return json_check_word(json, "false");
    case 'n':
        return json_check_word(json, "null");
    default:
        return json_check_number(json);
    }
}

/* Return 0 if the bytes are one object of JSON, or -1 to give up. */
static int json_check_object(const unsigned char *at, int64_t size)
{
    Json json = {at, at + size};
    json_skip_space(&json);
    if (json.at >= json.end || *json.at != '{' || json_check_value(&json, 0) < 0)
        return -1;
    json_skip_space(&json);
    return json.at == json.end ? 0 : -1;
}

/* --- paths: of documents that were checked */

/* Skip a string behind its first quote; true if it has an escape. */
static inline int json_skip_string(Json *json)
{
    int has_escape = 0;
    while (*json->at != '"') {
        has_escape |= *json->at == '\\';
        json->at += *json->at == '\\' ? 2 : 1;
    }
    json->at++;
    return has_escape;
}

static void json_skip_value(Json *json)
{
    int depth = 0;
    json_skip_space(json);
    do {
        unsigned char byte = *json->at++;
        if (byte == '"')
            json_skip_string(json);
        else if (byte == '{' || byte == '[')
            depth++;
        else if (byte == '}' || byte == ']')
            depth--;
        else if (depth == 0)
            while (json->at < json->end && strchr(",}] \t\r\n", *json->at) == NULL)
                json->at++;
    } while (depth > 0);
}

/* Find the last field of a name in the object at `object`: 1 with `value` at it, 0 without one, -1 to give up. */
static int json_find_field(Json object, const unsigned char *name, int64_t name_size, Json *value)
{
    int found = 0;
    if (!json_take(&object, '{'))
        return -1;
    while (json_take(&object, '"')) {
        const unsigned char *start = object.at;
        if (json_skip_string(&object))
            return -1;
        int is_wanted =
            object.at - 1 - start == name_size && memcmp(start, name, (size_t)name_size) == 0;
        json_take(&object, ':');
        json_skip_space(&object);
        if (is_wanted) {
            *value = object;
            found = 1;
        }
        json_skip_value(&object);
        json_take(&object, ',');
    }
    return found;
}

/* Find the text of a string: 0, or -1 to give up. */
static int json_text(Json value, const unsigned char **text, int64_t *size)
{
    if (!json_take(&value, '"'))
        return -1;
    *text = value.at;
    if (json_skip_string(&value))
        return -1;
    *size = value.at - 1 - *text;
    return 0;
}

#define JSON_EXACT_DIGITS 15

/* Compare a number with an integer: 0 with `order` negative, zero or positive; -1 to give up. Decimal fractions are
   compared as doubles, as CEL compares them: up to 15 digits and 10^15 the division rounds correctly. */
static int json_compare_number(Json value, int64_t literal, int *order)
{
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    int is_negative = *value.at == '-', digits = 0, fraction = 0;
    int64_t number = 0;
    value.at += is_negative;
    if (value.at >= value.end || *value.at < '0' || *value.at > '9')
        return -1;
    for (int is_fraction = 0; value.at < value.end; value.at++) {
        if (*value.at == '.') {
            is_fraction = 1;
            continue;
        }
        if (*value.at < '0' || *value.at > '9')
            break;
        if (++digits > JSON_MAX_DIGITS)
            return -1;
        number = 10 * number + (*value.at - '0');
        fraction += is_fraction;
    }
    if (value.at < value.end && (*value.at | 0x20) == 'e')
        return -1;
    number = is_negative ? -number : number;
    if (fraction == 0) {
        *order = (number > literal) - (number < literal);
        return value.at[-1] == '.' ? -1 : 0;
    }
    if (digits > JSON_EXACT_DIGITS || literal > (1LL << 53) || literal < -(1LL << 53))
        return -1;
    double exact = (double)number / powers[fraction];
    *order = (exact > (double)literal) - (exact < (double)literal);
    return 0;
}

#endif
