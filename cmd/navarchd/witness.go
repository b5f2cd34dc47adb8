package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv"
)

// witness is one refusal as replicas tell it each other: who refused which version of what. Refusals come from outside, so
// everything about them is bounded.
type witness struct {
	View    string `json:"view"` // serve.View.ID, equal on all replicas
	Type    string `json:"type"` // xds.Type.Noun
	Name    string `json:"name"`
	Version string `json:"version"`
	Who     string `json:"who"` // hash of the identity: one counts once, on whatever replicas it refuses
	At      int64  `json:"at"`  // Unix seconds
}

const (
	maxWitnesses   = 512       // that one replica shares
	maxPerIdentity = 16        // of them of one identity: one bad pod fills no list
	maxWord        = 2048      // bytes of a view's or a resource's name; longer ones are not shared
	maxTestimony   = 512 << 10 // bytes of one replica's list
)

// verdictTime is how long a refusal counts.
const verdictTime = 10 * time.Minute

// witnessOf is what is shared of a refusal. A proxy without an identity counts by its node.
func witnessOf(r serve.Refusal) witness {
	who := sha256.Sum256([]byte(cmp.Or(r.Identity, "node:"+r.Node)))
	return witness{View: r.View, Type: r.Type.Noun(), Name: r.Name, Version: r.Version, Who: hex.EncodeToString(who[:16]), At: r.At.Unix()}
}

// refusal is the inverse, as far as verdicts need it.
func (w witness) refusal() serve.Refusal {
	return serve.Refusal{View: w.View, Type: xds.ParseNoun(w.Type), Name: w.Name, Version: w.Version, Identity: w.Who, At: time.Unix(w.At, 0)}
}

func (w witness) valid() bool {
	return w.Name != "" && w.Version != "" && len(w.Who) == 32 && len(w.View) <= maxWord && len(w.Name) <= maxWord && len(w.Version) <= maxWord &&
		xds.ParseNoun(w.Type) != xds.Unknown
}

// same: the same identity refused the same version of the same resource of the same view.
func (w witness) same(o witness) bool { w.At = o.At; return w == o }

// testimony is what this replica shares, the oldest first. It has no clock.
type testimony struct{ all []witness }

// add takes a refusal; false: the others learn nothing new from it. One that is repeated counts from its newest time, told
// again after a tenth of verdictTime.
func (t *testimony) add(w witness) bool {
	if !w.valid() {
		return false
	}
	if i := slices.IndexFunc(t.all, w.same); i >= 0 {
		if w.At-t.all[i].At < int64(verdictTime/time.Second)/10 {
			return false
		}
		t.all = slices.Delete(t.all, i, i+1)
	}
	t.all = append(t.all, w)
	of := map[string]int{}
	for _, o := range t.all {
		of[o.Who]++
	}
	loser := w.Who
	switch {
	case of[w.Who] > maxPerIdentity:
	case len(t.all) > maxWitnesses: // whoever has most makes room, so that a flood takes from itself
		for _, o := range t.all {
			if of[o.Who] > of[loser] {
				loser = o.Who
			}
		}
		if of[loser] == 1 {
			loser = t.all[0].Who
		}
	default:
		return true
	}
	oldest := slices.IndexFunc(t.all, func(o witness) bool { return o.Who == loser })
	t.all = slices.Delete(t.all, oldest, oldest+1)
	return true
}

// prune forgets what counts no more, and says whether there was anything.
func (t *testimony) prune(now time.Time) bool {
	before := len(t.all)
	t.all = slices.DeleteFunc(t.all, func(w witness) bool { return now.Sub(time.Unix(w.At, 0)) >= verdictTime })
	return len(t.all) < before
}

// encode leaves out the oldest where the list would be too long.
func (t *testimony) encode() ([]byte, error) {
	for from := 0; ; from += 1 + (len(t.all)-from)/8 {
		raw, err := json.Marshal(t.all[min(from, len(t.all)):])
		if err != nil || len(raw) <= maxTestimony {
			return raw, err
		}
	}
}

// decodeTestimony reads a replica's list; what is not valid in it is left out.
func decodeTestimony(raw []byte) ([]witness, error) {
	if len(raw) > maxTestimony {
		return nil, fmt.Errorf("%d bytes, at most %d are read", len(raw), maxTestimony)
	}
	var all []witness
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(w witness) bool { return !w.valid() })
	return all[:min(len(all), maxWitnesses)], nil
}

// hearing is which of the others' lists were heard: revisions by path.
type hearing map[string]int64

// hear is what is new in a folder of lists; own is the path of this replica's. Problems are lists that cannot be read.
func (h hearing) hear(f kv.Folder, own string) (news []witness, problems []string) {
	there := map[string]bool{}
	for _, blob := range f.Blobs {
		there[blob.Path] = true
		if blob.Path == own || h[blob.Path] == blob.Revision {
			continue
		}
		h[blob.Path] = blob.Revision
		all, err := decodeTestimony(blob.Raw)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", strings.TrimSpace(blob.Path), err))
		}
		news = append(news, all...)
	}
	for path := range h {
		if !there[path] {
			delete(h, path)
		}
	}
	return news, problems
}
