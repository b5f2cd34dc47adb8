// Package acknowledged reports to the leader the revision of the store that all proxies have acknowledged, and the
// objects because of which proxies refuse configuration. The leader writes one revision to etcd as a question
// (awaited/). Each replica writes an answer (acknowledged/, under a lease). The answer has a revision that all proxies
// of the replica have acknowledged. It also has the objects because of which proxies of the replica refuse
// configuration. So the number of writes depends on the leader's questions and on refusals. It does not depend on
// proxies or endpoints that come and go.
//
// Owns: this replica's answer in acknowledged/; at the leader also the question in awaited/.
// Reads: both folders of etcd, through store/kv.
// Never: reports about single proxies; decides what the leader does with the answers.
//
// # One question
//
// The leader writes to an object's status whether proxies have the object's present generation (navarch.io/Delivered).
// When the leader has written all generations that it knows to the store, its question is the revision of its last
// write.
//
// A replica waits until its plan has notified the proxies' streams of the asked revision. At that moment it records the
// streams that are not up to date. When all recorded streams are up to date, the replica answers with the revision of
// which the plan had notified them. So the answer does not wait for streams that begin later, or for later changes.
//
// Answers repeat the epoch of the question. An epoch belongs to one leader. Answers need an epoch because revisions
// begin again when etcd is restored. A leader without PILOT_ENABLE_STATUS deletes the question, and replicas then
// delete their answers.
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

// Paths in etcd: the folder of the answers, and the folder and path of the question.
const (
	folder  = "acknowledged/"
	awaited = "awaited/"
	path    = awaited + "revision"
)

// Times of writes.
const (
	lease     = time.Minute     // life of an answer after its replica has ended
	writeTime = 5 * time.Second // limit of one write
)

// Limits of one replica's answer. Limits are needed because users control the objects, and proxies control the texts.
const (
	maxRefusals = 200       // number of objects
	maxText     = 256       // bytes of a text; longer texts are truncated
	maxPath     = 1 << 10   // bytes of an object's path; objects with longer paths are left out
	maxEncoded  = 512 << 10 // bytes of an encoded answer
)

// Refusal is an object because of which proxies refuse configuration.
type Refusal struct {
	Object model.Key
	Text   string // the error of one of the proxies; in Answers at most 256 bytes
}

// question is the leader's question. The epoch distinguishes answers to different leaders.
type question struct {
	Epoch    int64 `json:"epoch"`
	Revision int64 `json:"revision"`
}

// answer is the answer of a replica.
type answer struct {
	question               // Epoch: that of the leader's question; Revision: the newest acknowledged revision
	Replica  string        `json:"replica"`
	Refused  []refusalJSON `json:"refused,omitempty"`
}

// refusalJSON is the encoding of a Refusal.
type refusalJSON struct {
	Record string `json:"record"` // path of the object's record below records/
	Text   string `json:"text,omitempty"`
}

// entries returns refusals within the limits, sorted by object. Each object occurs once, with its first text.
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

// decode decodes another replica's answer, within the limits of answers. It leaves out objects of a kind that this
// build does not know. It fails if the answer is too long or does not decode.
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

// questionIn decodes the question in the folder awaited/. Without a question it returns the zero question. It fails if
// the question does not decode.
func questionIn(f kv.Folder) (q question, err error) {
	for _, blob := range f.Blobs {
		if blob.Path == path {
			err = json.Unmarshal(blob.Raw, &q)
		}
	}
	return q, err
}
