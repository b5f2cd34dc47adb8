// Package removal lets an operator accept losses that the shrink guards hold, while the leader runs: objects that vanished, and EndpointSlices
// whose newest version lacks most of its endpoints.
//
// Owns: removals/ (the leader, under its fence): what is held, what vanished lately, and the decisions on approvals; approvals/, which operators write and
// the leader deletes.  Reads: what the guards hold (Holder).  Never: removes what an approval does not name exactly; applies an
// approval twice; believes who an approval says that it is from: who may write approvals/ is etcd's to say.
package removal

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/object"
)

// Where things are, below the mesh's prefix.
const (
	Folder        = "removals/"
	heldPath      = Folder + "held"
	decisionsPath = Folder + "decisions"
	Approvals     = "approvals/" // <id>, under a lease of who waits for the decision
)

// The bounds of what is stored.
const (
	maxNames    = 200 // objects that are named
	maxText     = 256 // bytes of a name, a reason or a claim
	maxApproval = 4 << 10
	maxAccepted = 32 // decisions that are remembered
	maxRefused  = 16
)

// Held is what the leader holds.
type Held struct {
	Digest string         `json:"digest"` // of exactly these losses, see digestOf
	Count  int            `json:"count"`
	Kinds  map[string]int `json:"kinds"`
	Names  []string       `json:"names"` // the first, as object.Loss has it: "Kind namespace/name", "(changed)" where it is still there
	Since  time.Time      `json:"since"`
	Leader string         `json:"leader"`
}

// Approval is an operator's word that one set of objects may go. All but ID and Digest are claims of who wrote it.
type Approval struct {
	ID       string    `json:"id"`
	Digest   string    `json:"digest"`
	Reason   string    `json:"reason,omitempty"`
	OSUser   string    `json:"os_user,omitempty"`
	Host     string    `json:"host,omitempty"`
	EtcdUser string    `json:"etcd_user,omitempty"`
	At       time.Time `json:"at"`
}

// Decision is what the leader made of an approval.
type Decision struct {
	Approval Approval       `json:"approval"`
	Refused  string         `json:"refused,omitempty"` // why; empty: it was accepted
	Applied  bool           `json:"applied"`           // the objects were let go
	Failed   string         `json:"failed,omitempty"`  // why not, though it was accepted
	Count    int            `json:"count,omitempty"`
	Kinds    map[string]int `json:"kinds,omitempty"`
	At       time.Time      `json:"at"`
	Leader   string         `json:"leader"`
	Epoch    int64          `json:"epoch"`
}

// Final says whether nothing more becomes of it.
func (d Decision) Final() bool { return d.Refused != "" || d.Failed != "" || d.Applied }

// digestOf names a set of losses: hexadecimal SHA-256 of their objects, and the versions of those that are still there, in order, each
// part with its length before it.
func digestOf(losses []object.Loss) string {
	h := sha256.New()
	for _, l := range slices.SortedFunc(slices.Values(losses), object.Loss.Compare) {
		for _, part := range []string{l.ID.Origin.Cluster(), l.ID.Group, l.ID.Kind, l.ID.Namespace, l.ID.Name, l.Version} {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
			h.Write([]byte(part))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// heldOf describes a set of losses; nil where it is empty.
func heldOf(losses []object.Loss) *Held {
	if len(losses) == 0 {
		return nil
	}
	h := &Held{Digest: digestOf(losses), Count: len(losses), Kinds: map[string]int{}}
	for i, l := range slices.SortedFunc(slices.Values(losses), object.Loss.Compare) {
		if h.Kinds[clip(l.ID.Kind)]++; i < maxNames {
			h.Names = append(h.Names, clip(l.String()))
		}
	}
	return h
}

// clip cuts foreign text, between two characters.
func clip(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "")
}

// parseHeld reads what is stored; nil where nothing is held.
func parseHeld(raw []byte) (*Held, error) {
	if raw == nil {
		return nil, nil
	}
	h := &Held{}
	if err := json.Unmarshal(raw, h); err != nil {
		return nil, fmt.Errorf("%s: %w", heldPath, err)
	}
	return h, nil
}

func parseDecisions(raw []byte) (all []Decision, err error) {
	if raw == nil {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", decisionsPath, err)
	}
	return all, nil
}

// parseApproval reads an approval at a path. It takes bytes from anywhere; what it returns is bounded also with an error.
func parseApproval(path string, raw []byte) (a Approval, err error) {
	id := clip(strings.TrimPrefix(path, Approvals))
	if len(raw) > maxApproval {
		return Approval{ID: id}, fmt.Errorf("%d bytes, at most %d", len(raw), maxApproval)
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return Approval{ID: id}, fmt.Errorf("not readable: %w", err)
	}
	stated := a.ID
	a.ID, a.Digest, a.Reason, a.OSUser, a.Host, a.EtcdUser = id, clip(a.Digest), clip(a.Reason), clip(a.OSUser), clip(a.Host), clip(a.EtcdUser)
	if stated != id {
		return a, errors.New("its id is not that of its key")
	}
	if sum, err := hex.DecodeString(a.Digest); err != nil || len(sum) != sha256.Size {
		return a, fmt.Errorf("%q is not a digest: %d hexadecimal digits, as navarchctl store held prints them", a.Digest, hex.EncodedLen(sha256.Size))
	}
	return a, nil
}

// remember adds a decision, in place of an earlier word on the same approval, and forgets the oldest of its sort.
func remember(all []Decision, d Decision) []Decision {
	all = slices.DeleteFunc(slices.Clone(all), func(o Decision) bool { return o.Approval.ID == d.Approval.ID })
	all = append(all, d)
	left := map[bool]int{true: maxRefused, false: maxAccepted}
	for i := len(all) - 1; i >= 0; i-- {
		if left[all[i].Refused != ""]--; left[all[i].Refused != ""] < 0 {
			all = slices.Delete(all, i, i+1)
		}
	}
	return all
}
