// Package object defines the output of sources (readers of API servers and folders): raw API objects, and events about
// changes of the objects.
//
// Owns: nothing; values are immutable.
// Reads: store/origin and store/problem.
// Never: applies a schema or defaults; validates objects; uses sockets.
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

// Op is the kind of an Event.
type Op uint8

// The kinds of an Event.
const (
	Put    Op = iota + 1 // the object exists and has this content
	Delete               // the object is gone, for the reason Event.Why; the Event has no Object
	Broken               // the object exists, but cannot be read (Event.Problem); the last good content stays in effect
	// Synced concerns no object. It means that the source has emitted all objects that existed when the source began to
	// read. Event.ID has only the source's origin. For a folder of files, Event.ID is zero.
	Synced
	// Forget concerns no object. It means that all earlier events from the source are void. Event.ID has the source's
	// origin. After Forget, the source emits all objects again, and Synced.
	Forget
)

// ID identifies an object. Group is empty for the core API. Namespace is empty for objects without a namespace. ID has
// no API version, because an API server serves one object in several versions.
type ID struct {
	Origin    origin.Origin
	Group     string
	Kind      string
	Namespace string
	Name      string
}

// String returns the ID as users read it: "Kind namespace/name", or "Kind name" without a namespace. The suffix " in
// cluster NAME" follows, except for the config cluster (the cluster with the mesh's configuration). For a kind of the
// Gateway API, the group follows the kind. For an incomplete ID, String returns the known parts.
func (id ID) String() string {
	kind := id.Kind
	if id.Group == GatewayAPI { // Istio has a Gateway too
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

// GatewayAPI is the group of the Kubernetes Gateway API. Messages write kinds of this group as kubectl does:
// kind.group.
const GatewayAPI = "gateway.networking.k8s.io"

// OwnGroup is the group in IDs of objects that Navarch makes itself. It is also the group in IDs that stand for
// looked-up names, such as host names.
const OwnGroup = "navarch.io"

// SameOrigin returns a copy of other with the origin of id.
func (id ID) SameOrigin(other ID) ID {
	other.Origin = id.Origin
	return other
}

// Compare orders IDs by group, kind, namespace and name, then by origin.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.Group, o.Group), cmp.Compare(id.Kind, o.Kind), cmp.Compare(id.Namespace, o.Namespace),
		cmp.Compare(id.Name, o.Name), id.Origin.Compare(o.Origin))
}

// Why is the reason for which a source considers an object gone.
type Why uint8

// The reasons.
const (
	Deleted   Why = iota // by a DELETE event, or missing in a complete list that is not older than the last known state
	Undefined            // the definition of the object's kind was removed, or is being removed
	Rewound              // the object is missing in a list that is older than the last known state
	Unread               // the object's kind could not be listed: forbidden (403), or not served (404)
	Unnamed              // the object's cluster is no longer read, because no Secret names the cluster
	Missing              // the object is no longer in the folder
)

// whys contains, for each Why, the word that is stored, and the clause for messages about several objects.
var whys = [...]struct{ word, clause string }{
	Deleted:   {"deleted", "were deleted"},
	Undefined: {"undefined", "have lost the definition of their kind"},
	Rewound:   {"rewound", "are missing in a list that is older than what was seen before"},
	Unread:    {"unread", "are of a kind that could not be listed"},
	Unnamed:   {"unnamed", "are of a cluster that no Secret names any more"},
	Missing:   {"missing", "are missing in the folder"},
}

// String returns the reason as a clause about several objects, for messages. It panics if w is not one of the reasons.
func (w Why) String() string { return whys[w].clause }

// MarshalText implements encoding.TextMarshaler. It panics if w is not one of the reasons, and never returns an error.
func (w Why) MarshalText() ([]byte, error) { return []byte(whys[w].word), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It fails for an unknown word, for example the word of a newer
// version of Navarch, and then leaves w unchanged.
func (w *Why) UnmarshalText(text []byte) error {
	for i, one := range whys {
		if one.word == string(text) {
			*w = Why(i)
			return nil
		}
	}
	return fmt.Errorf("reason %.40q: unknown", text)
}

// Object is one API object as it was read. Goroutines share it, so it must not be changed.
type Object struct {
	ID          ID
	Version     string    // of the API: v1, v1alpha3, ...
	Created     time.Time // metadata.creationTimestamp; zero: unknown
	Labels      map[string]string
	Annotations map[string]string
	// JSON is the object as JSON. A source may omit parts that no record needs.
	JSON []byte
	// UID and Generation are metadata.uid and metadata.generation, if the source has them. In a file, the author may
	// have written any value.
	UID        string
	Generation int64
	// Location names the place of the object in messages. For a file it is a path relative to the folder, and a
	// document number.
	Location string
}

// CreatedAt returns the creation time in Unix seconds, for model.Head.Created. It is 0 if the time is unknown. Times
// before 1970-01-01T00:00:01Z count as that second, because 0 has another meaning.
func (o *Object) CreatedAt() int64 {
	if o.Created.IsZero() {
		return 0
	}
	return max(o.Created.Unix(), 1)
}

// Event is one change. For Broken, ID has the parts that could be read.
type Event struct {
	Op       Op
	ID       ID
	Object   *Object // for Put only
	Location string
	Problem  string // for Broken
	Why      Why    // for Delete
	// Kinds is set for Synced of a Kubernetes cluster. It contains Group and Kind of each kind that was listed
	// completely, sorted. Without such a kind it is empty, but not nil. For every other source Kinds is nil, which
	// means all kinds.
	Kinds []ID
}

// Reference states that the object By makes workloads use the object To.
type Reference struct{ To, By ID }

// Problem is one fault of one object. It affects only that object or a part of it.
type Problem struct {
	ID       ID
	Location string // as Object.Location
	Field    string // path as users write it: spec.http[0].route[1].destination.host; empty: the whole object
	Code     problem.Code
	Analyzer problem.Analyzer // such as IST0101 of Istio's analyzers; empty: no such code
	Severity problem.Severity
	Message  string // names no objects that the namespace of the object may not see
	// Whole is the message with the names of all objects, for readers who see everything. If it is empty, Message is
	// the text for all readers.
	Whole string
}

// Full returns the message for readers who see all objects.
func (p Problem) Full() string { return cmp.Or(p.Whole, p.Message) }

// String returns "Kind namespace/name: field: message [IST0101]", for readers who see all objects. Empty parts are
// omitted. If the object has no name, the text contains the location.
func (p Problem) String() string {
	parts := []string{p.ID.String(), p.Field, p.Full() + p.Analyzer.Suffix()}
	if p.ID.Name == "" {
		parts[0] = strings.TrimSpace(parts[0] + " " + p.Location)
	}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}
