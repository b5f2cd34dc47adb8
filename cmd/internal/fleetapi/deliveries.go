package fleetapi

import (
	"cmp"
	"slices"
	"time"

	"navarch.io/navarch/push/ledger"
)

// Delivery is the item of /api/v1/deliveries. It reports how far a revision of the store, or the newest change of an
// object, has reached the proxies. A replica has planned a revision when it has computed the new configuration of its
// proxies.
type Delivery struct {
	Revision int64 `json:"revision"` // the parameter revision
	// Done reports that all replicas have answered and have planned the revision, and that no proxy still has to
	// answer.
	Done bool `json:"done"`
	// Planned reports that all replicas in the answer have planned the revision. Replicas without an answer do not
	// count.
	Planned bool `json:"planned"`
	// Exact reports that at least one replica knows the newest change of the requested object. For such a replica,
	// Change and Done are about this change alone. For other replicas, Done needs all changes up to the revision. Exact
	// is false if no object was requested.
	Exact bool `json:"exact,omitempty"`
	// Change counts the proxies that the change affects. It is nil if no replica has a record of the change that the
	// caller may see.
	Change *Change `json:"change,omitempty"`
	// Pending names proxies that still have to answer, at most MaxNamed, sorted by Proxy. PendingCount counts all
	// proxies that still have to answer.
	Pending      []Pending `json:"pending,omitempty"`
	PendingCount int       `json:"pending_count,omitempty"`
	// Refusing names proxies that refuse a version of a resource because of the change or object. It also names views
	// (groups of proxies with equal configuration) from which such a version is withheld. It has at most MaxNamed
	// entries, sorted by Proxy.
	Refusing []Pending `json:"refusing,omitempty"`
}

// Pending is a proxy that has not acknowledged a change, or refuses it. In Delivery.Refusing, a Pending may stand for a
// view from which a version is withheld.
type Pending struct {
	Proxy   string `json:"proxy"`   // name.namespace, or the node's id; of a view: "view NAME"
	Replica string `json:"replica"` // the replica to which the proxy is connected
	// Since is the time at which the proxy fell behind or refused the version, or at which the version was withheld. It
	// is zero if the proxy connected with older resources, and is not in sync yet.
	Since   time.Time `json:"since,omitzero"`
	Why     string    `json:"why"`               // the reason, as a text for operators
	Objects []string  `json:"objects,omitempty"` // in Refusing: the objects from which the resource was made
}

// DeliveryParameters are the names of the parameters of /api/v1/deliveries.
var DeliveryParameters = []string{"revision", "object", "wait"}

// MaxWait bounds the parameter wait of /api/v1/deliveries and /api/v1/stored.
const MaxWait = 30 * time.Second

// MaxNamed bounds the entries in each list of proxies of a Delivery.
const MaxNamed = 20

// Delivered is one replica's part of a Delivery. Its fields have the meaning of Delivery's fields, for this replica
// alone. Delivery.Change merges the Changes of all replicas.
type Delivered struct {
	Planned      bool            `json:"planned"`
	Done         bool            `json:"done"`
	Exact        bool            `json:"exact,omitempty"`
	Changes      []ledger.Report `json:"changes,omitempty"`
	Pending      []Pending       `json:"pending,omitempty"`
	PendingCount int             `json:"pending_count,omitempty"`
	Refusing     []Pending       `json:"refusing,omitempty"`
}

// MergeDeliveries merges the replicas' parts into one item. The argument missing is the number of replicas without an
// answer. If missing is above 0, Done is false. Without parts, Planned is true. MergeDeliveries sets only Items of the
// answer.
func MergeDeliveries(revision int64, parts []From[Delivered], missing int) (a Answer[Delivery]) {
	d := Delivery{Revision: revision, Done: missing == 0, Planned: true}
	var reports []ledger.Report
	replicas := 0
	for _, f := range parts {
		p := f.Part
		d.Done, d.Planned, d.Exact = d.Done && p.Done, d.Planned && p.Planned, d.Exact || p.Exact
		reports = append(reports, p.Changes...)
		replicas += min(len(p.Changes), 1)
		d.Pending, d.PendingCount = append(d.Pending, p.Pending...), d.PendingCount+p.PendingCount
		d.Refusing = append(d.Refusing, p.Refusing...)
	}
	if len(reports) > 0 {
		c := ChangeOf(reports, replicas)
		d.Change = &c
	}
	d.Pending, d.Refusing = named(d.Pending), named(d.Refusing)
	a.Items = []Delivery{d}
	return a
}

// named sorts proxies in place by name and replica, and returns at most MaxNamed of them.
func named(all []Pending) []Pending {
	slices.SortFunc(all, func(a, b Pending) int {
		return cmp.Or(cmp.Compare(a.Proxy, b.Proxy), cmp.Compare(a.Replica, b.Replica))
	})
	return all[:min(len(all), MaxNamed)]
}

// Stored is the item of /api/v1/stored. It reports whether the leader (the replica that writes the store) has read an
// object from its source and stored it.
type Stored struct {
	Leads bool `json:"leads"` // this process is the leader; if false, the fields below are empty
	// Revision is the store's revision of the leader's newest write. It is 0 until the leader has read the requested
	// generation of the object, has sealed (encrypted) the object's private key, and has written all waiting changes.
	// For an object with errors (Problems), the newest write may precede the object's edit, because the object's
	// previous records stay stored.
	Revision   int64    `json:"revision"`
	Unsealed   bool     `json:"unsealed,omitempty"`   // the private key of the Secret is not sealed yet; Revision is 0
	Read       bool     `json:"read"`                 // the leader has read the object
	Generation int64    `json:"generation,omitempty"` // metadata.generation as read; 0: unknown to the source, or not read
	Problems   []string `json:"problems,omitempty"`   // errors of the object, as "FIELD: MESSAGE"; nil while changes wait to be written
}

// StoredParameters are the names of the parameters of /api/v1/stored.
var StoredParameters = []string{"kind", "group", "namespace", "name", "generation", "wait"}
