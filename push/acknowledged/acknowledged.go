// Package acknowledged tells the leader up to which revision of the store the streams of all replicas have acknowledged their configuration,
// and which objects proxies refuse. The leader asks about one revision (awaited/), and each replica answers once, when all of its streams have
// reached it (acknowledged/, under a lease). So the number of writes follows the leader's questions, not the proxies or endpoints that come
// and go.
//
// Owns: this replica's answer in acknowledged/; at the leader awaited/, and what the answers say.  Reads: both, etcd through store/kv.  Never:
// says anything about single proxies; decides what follows from it.
//
// # One question
//
// The leader writes into an object's status whether proxies have its present generation (navarch.io/Delivered). The
// source's events name the generation. Once nothing waits in the ingester, all generations are in the store at the
// revision that the ingester wrote last, and the leader asks about that revision.
//
// A replica whose plan has notified its streams of the revision notes which of them are not up to date at that moment
// (serve.Unsettled), and answers when all of these are. So each stream is looked at once for a question, and the
// answer does not wait for streams that join or move later. No proxy or endpoint that comes or goes causes a write to
// etcd or to the API server.
//
// Answers carry the epoch of the leader that asked, because revisions begin again where etcd is restored. A leader
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

// Where it is in etcd.
const (
	folder  = "acknowledged/"
	awaited = "awaited/"
	path    = awaited + "revision"
)

const (
	lease     = time.Minute // an answer ends so long after the replica that wrote it
	writeTime = 5 * time.Second
)

// Bounds of one replica's answer. Objects are users', and texts proxies'.
const (
	maxRefusals = 200
	maxText     = 256 // bytes; the rest is cut off
	maxPath     = 1 << 10
	maxEncoded  = 512 << 10
)

// Refusal is an object because of which proxies refuse something.
type Refusal struct {
	Object model.Key
	Text   string // in a proxy's words
}

// question is what the leader asks. Each leader's answers are told apart by its epoch: revisions begin again where etcd is restored.
type question struct {
	Epoch    int64 `json:"epoch"`
	Revision int64 `json:"revision"`
}

// answer is what a replica says.
type answer struct {
	question         // whose; revision is what was reached: what the leader asked for, or more
	Replica  string  `json:"replica"`
	Refused  []entry `json:"refused,omitempty"`
}

type entry struct {
	Record string `json:"record"` // its path below records/
	Text   string `json:"text,omitempty"`
}

// entries bounds refusals: each object once, with its first text, in order.
func entries(refused []Refusal) (all []entry) {
	seen := map[string]bool{}
	for _, r := range refused {
		at := r.Object.Path()
		if seen[at] || len(at) > maxPath || r.Object.Check() != nil {
			continue
		}
		seen[at] = true
		all = append(all, entry{at, cut(r.Text)})
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.Record, b.Record) })
	return all[:min(len(all), maxRefusals)]
}

func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxText)], "") }

// decode reads another replica's answer, within the same bounds. Objects of a kind that this build does not know are left out.
func decode(raw []byte) (a answer, refused []Refusal, err error) {
	if len(raw) > maxEncoded {
		return a, nil, fmt.Errorf("%d bytes, at most %d are read", len(raw), maxEncoded)
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return a, nil, err
	}
	for _, e := range a.Refused[:min(len(a.Refused), maxRefusals)] {
		if key, err := model.ParsePath(e.Record); err == nil {
			refused = append(refused, Refusal{key, cut(e.Text)})
		}
	}
	return a, refused, nil
}

// questionIn is the question in the folder; the zero one: nothing is asked.
func questionIn(f kv.Folder) (q question, err error) {
	for _, blob := range f.Blobs {
		if blob.Path == path {
			err = json.Unmarshal(blob.Raw, &q)
		}
	}
	return q, err
}
