// Package acknowledged reports the state of the proxies' acknowledgements to the leader. It reports the revision of the
// store up to which the streams of all replicas have acknowledged their configuration, and the objects that proxies
// refuse. The leader writes one revision as a question (awaited/). Each replica writes its answer once, when all of its
// streams have reached the revision (acknowledged/, under a lease). So the number of writes depends on the leader's
// questions, not on the proxies or endpoints that come and go.
//
// Owns: this replica's answer in acknowledged/; at the leader awaited/, and the content of all answers.  Reads: both,
// etcd through store/kv.  Never: reports on single proxies; decides on the consequences.
//
// # One question
//
// The leader writes into an object's status whether proxies have its present generation (navarch.io/Delivered). The
// source's events have the generation. When the ingester's queue is empty, all generations are in the store at the
// revision of the ingester's last write, and the leader's question is that revision.
//
// The plan of a replica first notifies the streams of the revision. Then the replica records the streams that are not
// up to date at that moment (serve.Unsettled), and answers when all of them are. So each stream is examined once for a
// question, and the answer does not wait for streams that join or move later. No proxy or endpoint that comes or goes
// causes a write to etcd or to the API server.
//
// Answers have the epoch of the leader's question, because revisions begin again when etcd is restored. A leader
// without PILOT_ENABLE_STATUS deletes the question, and replicas then delete their answers. A version that is withheld
// from one identity alone counts as refused only for objects of the identity's own namespace.
package acknowledged

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
)

// The places in etcd: the folder of the answers, and the folder and path of the question.
const (
	folder  = "acknowledged/"
	awaited = "awaited/"
	path    = awaited + "revision"
)

// Times of writes.
const (
	lease     = time.Minute     // an answer expires so long after the replica that wrote it ended
	writeTime = 5 * time.Second // limit of one write
)

// Limits of one replica's answer: users control the objects, and proxies the texts.
const (
	maxRefusals = 200
	maxText     = 256 // bytes; longer texts are truncated
	maxPath     = 1 << 10
	maxEncoded  = 512 << 10
)

// Refusal is an object because of which proxies refuse configuration.
type Refusal struct {
	Object model.Key
	Text   string // the error of one of the proxies
}

// question is the leader's question. Its epoch tells the answers to different leaders apart: revisions begin again when
// etcd is restored.
type question struct {
	Epoch    int64 `json:"epoch"`
	Revision int64 `json:"revision"`
}

// answer is the answer of a replica.
type answer struct {
	question               // its revision is the one that was reached: that of the leader's question, or a newer one
	Replica  string        `json:"replica"`
	Refused  []refusalJSON `json:"refused,omitempty"`
}

// refusalJSON is the encoding of a Refusal.
type refusalJSON struct {
	Record string `json:"record"` // its path below records/
	Text   string `json:"text,omitempty"`
}

// entries returns refusals within the limits: each object once, with its first text, sorted by object.
func entries(refused []Refusal) (all []refusalJSON) {
	seen := map[string]bool{}
	for _, r := range refused {
		at := r.Object.Path()
		if seen[at] || len(at) > maxPath || r.Object.Check() != nil {
			continue
		}
		seen[at] = true
		all = append(all, refusalJSON{at, truncate(r.Text)})
	}
	slices.SortFunc(all, func(a, b refusalJSON) int { return strings.Compare(a.Record, b.Record) })
	return all[:min(len(all), maxRefusals)]
}

// truncate cuts a text to maxText bytes of valid UTF-8.
func truncate(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxText)], "") }

// decode decodes another replica's answer, within the same limits. Objects of a kind that this build does not know are
// left out.
func decode(raw []byte) (a answer, refused []Refusal, err error) {
	if len(raw) > maxEncoded {
		return a, nil, fmt.Errorf("%d bytes, at most %d are read", len(raw), maxEncoded)
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return a, nil, err
	}
	for _, e := range a.Refused[:min(len(a.Refused), maxRefusals)] {
		if key, err := model.ParsePath(e.Record); err == nil {
			refused = append(refused, Refusal{key, truncate(e.Text)})
		}
	}
	return a, refused, nil
}

// questionIn decodes the question in the folder awaited/. Without a question it returns the zero question. The error is
// a question that does not decode.
func questionIn(f kv.Folder) (q question, err error) {
	for _, blob := range f.Blobs {
		if blob.Path == path {
			err = json.Unmarshal(blob.Raw, &q)
		}
	}
	return q, err
}
