// Package object is what a source hands on: one raw API object and what happened to it.
//
// Owns: nothing; values are immutable.  Reads: store/origin.  Never: a schema, defaults, validation (normal does
// that), sockets.
package object

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// Op is what happened to an object.
type Op uint8

const (
	Put    Op = iota + 1 // the object exists and has this content
	Delete               // the object is gone; only its ID counts
	Broken               // the object exists and cannot be read: Problem says why; what was good before stands
	// no object: everything that existed when the source started (or was re-read) has been emitted; ID has the source's origin, of files none
	Synced
	// no object: what the source of the ID's origin emitted does not count any more, until it has emitted everything again and Synced
	Forget
)

// ID names an object as its API does, and says where it is. Group is empty for the core API; the version is left out, since one
// object is served in several.
type ID struct {
	Origin    origin.Origin
	Group     string
	Kind      string
	Namespace string
	Name      string
}

// String returns the ID for messages: Kind namespace/name, or Kind name for objects without a namespace, with the cluster
// unless it is the config cluster. IDs without a name, such as those of all objects of a kind, give what they have. The zero ID is empty.
func (id ID) String() string {
	kind := id.Kind
	if id.Group == gatewayAPI { // Istio has a Gateway too
		kind += "." + id.Group
	}
	switch {
	case id.Name != "" && id.Namespace == "":
		return fmt.Sprintf("%s %s%s", kind, id.Name, id.Origin.Suffix())
	case id.Name != "":
		return fmt.Sprintf("%s %s/%s%s", kind, id.Namespace, id.Name, id.Origin.Suffix())
	case id.Namespace != "":
		return strings.TrimSpace(kind + " in namespace " + id.Namespace + id.Origin.Suffix())
	}
	return strings.TrimSpace(kind + id.Origin.Suffix())
}

// gatewayAPI is the group of the Kubernetes Gateway API. Messages name it behind its kinds, as kubectl does (kind.group).
const gatewayAPI = "gateway.networking.k8s.io"

// SameOrigin is the ID of another object of the same origin.
func (id ID) SameOrigin(other ID) ID {
	other.Origin = id.Origin
	return other
}

// Compare orders IDs by group, kind, namespace and name, then by origin.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.Group, o.Group), cmp.Compare(id.Kind, o.Kind), cmp.Compare(id.Namespace, o.Namespace),
		cmp.Compare(id.Name, o.Name), id.Origin.Compare(o.Origin))
}

// Why says by what a source knows that an object is gone.
type Why uint8

const (
	Deleted   Why = iota // its API server said so: a DELETE event, or a complete list that is no older than what was seen
	Undefined            // the definition of its kind is gone, or goes
	Rewound              // a list lacks it, and is older than what was seen before
	Unread               // its kind could not be listed in full: it may not be (403), or is not served (404)
	Unnamed              // its cluster is not read any more: no Secret names it
	Missing              // it is not in a folder any more
)

// whys are the words that are stored, and clauses for messages about several objects.
var whys = [...]struct{ word, clause string }{
	Deleted:   {"deleted", "were deleted"},
	Undefined: {"undefined", "have lost the definition of their kind"},
	Rewound:   {"rewound", "are missing in a list that is older than what was seen before"},
	Unread:    {"unread", "are of a kind that could not be listed"},
	Unnamed:   {"unnamed", "are of a cluster that no Secret names any more"},
	Missing:   {"missing", "are missing in the folder"},
}

// String is the reason as a clause, for messages.
func (w Why) String() string { return whys[w].clause }

// MarshalText implements encoding.TextMarshaler.
func (w Why) MarshalText() ([]byte, error) { return []byte(whys[w].word), nil }

// UnmarshalText implements encoding.TextUnmarshaler. A word of a newer build is an error.
func (w *Why) UnmarshalText(text []byte) error {
	for i, one := range whys {
		if one.word == string(text) {
			*w = Why(i)
			return nil
		}
	}
	return fmt.Errorf("reason %.40q: unknown", text)
}

// Object is one API object as it was read. It is shared between goroutines and never changed.
type Object struct {
	ID          ID
	Version     string // of the API: v1, v1alpha3, ...
	Created     time.Time
	Labels      map[string]string
	Annotations map[string]string
	// JSON is the whole object, as JSON; a source may leave out what no record needs.
	JSON []byte
	// UID and Generation are the source's, where it has them: of a file they are what somebody wrote there. Records have the UID of Pods and
	// ServiceAccounts, and nothing else of these.
	UID        string
	Generation int64
	// Location is where it was read, for messages: a path relative to the folder and a document number.
	Location string
}

// Event is one change. For Broken, ID may be partly empty: whatever could be read of it.
type Event struct {
	Op       Op
	ID       ID
	Object   *Object // nil but for Put
	Location string
	Problem  string // for Broken
	Why      Why    // for Delete
	// for Synced of a Kubernetes cluster: Group and Kind of what was listed in full, sorted; of other sources nil, and everything was
	Kinds []ID
}

// Reference is that an object makes workloads use another one.
type Reference struct{ To, By ID }

// Problem is one thing that is wrong with one object: it spoils that object (or one part of it) and nothing else.
type Problem struct {
	ID       ID
	Location string
	Field    string // path as users write it: spec.http[0].route[1].destination.host; empty: the whole object
	Code     problem.Code
	Analyzer problem.Analyzer // Istio's code for it; empty: it has none
	Severity problem.Severity
	Message  string
}

// String is "Kind namespace/name: field: message [IST0101]", with the location in place of an object that has no name.
func (p Problem) String() string {
	parts := []string{p.ID.String(), p.Field, p.Message + p.Analyzer.Suffix()}
	if p.ID.Name == "" {
		parts[0] = strings.TrimSpace(parts[0] + " " + p.Location)
	}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}
