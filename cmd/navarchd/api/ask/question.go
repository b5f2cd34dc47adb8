package ask

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// encode returns the question as JSON, with the body compressed. It fails if the question without its body, or the
// whole question, is too large.
func (q Question) encode() ([]byte, error) {
	raw, err := json.Marshal(q)
	if err != nil || len(q.Body) == 0 {
		return within(raw, maxQuestion, err)
	}
	if _, err := within(raw, maxQuestion, nil); err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err = w.Write(q.Body); err == nil {
		err = w.Close()
	}
	if err == nil {
		q.Packed = packed.Bytes()
		raw, err = json.Marshal(q)
	}
	return within(raw, maxPacked, err)
}

// within returns raw, or an error if raw has more bytes than the limit. If err is not nil, within returns raw and err,
// and does not check the length.
func within(raw []byte, limit int, err error) ([]byte, error) {
	if err == nil && len(raw) > limit {
		return nil, fmt.Errorf("a question of %d bytes, at most %d", len(raw), limit)
	}
	return raw, err
}

// decode parses an encoded question, and decompresses its body. The bytes are not trusted. Errors: the bytes are
// malformed, or the question or its body is too large.
func decode(raw []byte) (q Question, err error) {
	if raw, err = within(raw, maxPacked, nil); err != nil {
		return q, err
	}
	if err = json.Unmarshal(raw, &q); err != nil {
		return q, err
	}
	if len(q.Packed) == 0 {
		_, err = within(raw, maxQuestion, nil)
		return q, err
	}
	r, err := gzip.NewReader(bytes.NewReader(q.Packed))
	if err != nil {
		return q, fmt.Errorf("body: %w", err)
	}
	if q.Body, err = io.ReadAll(io.LimitReader(r, maxBody+1)); err != nil {
		return q, fmt.Errorf("body: %w", err)
	}
	if q.Packed = nil; len(q.Body) > maxBody {
		return q, errors.New("body: more than 4 MiB")
	}
	return q, nil
}
