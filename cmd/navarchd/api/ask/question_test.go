package ask

import (
	"bytes"
	"math/rand/v2"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

// A question with a body arrives as it was sent, and one beyond the bounds is neither sent nor read.
func TestQuestion(t *testing.T) {
	of := func(body []byte) Question {
		return Question{Endpoint: "plan", Query: url.Values{"delete": {"true"}}, Caller: Caller{Name: "x", All: true}, Body: body}
	}
	for _, body := range [][]byte{nil, []byte("a: b"), bytes.Repeat([]byte("kind: Service\n"), maxBody/14)} {
		raw, err := of(body).encode()
		if err != nil || len(raw) > maxQuestion+len(body)/50 {
			t.Fatalf("%d bytes, %v", len(raw), err)
		}
		if got, err := decode(raw); err != nil || !reflect.DeepEqual(got, of(body)) {
			t.Errorf("%d bytes of body, %v", len(got.Body), err)
		}
	}
	noise := make([]byte, maxPacked)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	for name, q := range map[string]Question{"noise": of(noise), "a query": {Query: url.Values{"x": {strings.Repeat("x", maxQuestion)}}},
		"a query with a body": {Query: url.Values{"x": {strings.Repeat("x", maxQuestion)}}, Body: []byte("a")}} {
		if _, err := q.encode(); err == nil {
			t.Errorf("%s: is sent", name)
		}
	}
	large, err := of(bytes.Repeat([]byte("x"), maxBody+1)).encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string][]byte{"a body that grows": large, "no JSON": []byte("{"), "no gzip": []byte(`{"body":"eHg="}`),
		"much": bytes.Repeat([]byte(" "), maxPacked+1), "much without a body": bytes.Repeat([]byte("["), maxQuestion+1)} {
		if _, err := decode(raw); err == nil {
			t.Errorf("%s: is read", name)
		}
	}
}
