package fleetapi

import (
	"cmp"
	"slices"
	"time"

	"navarch.io/navarch/push/ledger"
)

// Delivery is the item of /api/v1/deliveries: how far a revision of the store, or the newest change of an object, has
// been delivered.
type Delivery struct {
	Revision int64 `json:"revision"` // that was asked for
	// Done: all replicas in the answer have planned the revision, and no proxy still has to answer.
	Done bool `json:"done"`
	// Planned: all replicas in the answer have planned the revision.
	Planned bool `json:"planned"`
	// Exact: the counts are those of the object's newest change. Otherwise Change counts the change of the revision,
	// and Done waits for everything up to the revision.
	Exact bool `json:"exact,omitempty"`
	// Change counts the proxies of the change; nil: no recorded change is of the revision, so no proxy was affected.
	Change *Change `json:"change,omitempty"`
	// Pending are proxies that still have to answer, within a bound; PendingCount counts all.
	Pending      []Pending `json:"pending,omitempty"`
	PendingCount int       `json:"pending_count,omitempty"`
	// Refusing are proxies that refuse a version, or from which one is withheld, within a bound.
	Refusing []Pending `json:"refusing,omitempty"`
}

// Pending is a proxy that has not acknowledged a change.
type Pending struct {
	Proxy   string    `json:"proxy"` // name.namespace, or the node's id
	Replica string    `json:"replica"`
	Since   time.Time `json:"since,omitzero"` // when it was last in sync
	Why     string    `json:"why"`
	Objects []string  `json:"objects,omitempty"` // that made the resource, of a refusal
}

// DeliveryParameters are the parameters of /api/v1/deliveries.
var DeliveryParameters = []string{"revision", "object", "wait"}

// MaxWait bounds the parameter wait.
const MaxWait = 30 * time.Second

// MaxNamed bounds the proxies that a delivery names.
const MaxNamed = 20

// Delivered is one replica's part of a delivery.
type Delivered struct {
	Planned      bool            `json:"planned"`
	Done         bool            `json:"done"`
	Exact        bool            `json:"exact,omitempty"`
	Changes      []ledger.Report `json:"changes,omitempty"`
	Pending      []Pending       `json:"pending,omitempty"`
	PendingCount int             `json:"pending_count,omitempty"`
	Refusing     []Pending       `json:"refusing,omitempty"`
}

// MergeDeliveries merges the replicas' parts. missing is the number of replicas without an answer: with one, nothing is
// done.
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

// named returns the first proxies by name, within the bound.
func named(all []Pending) []Pending {
	slices.SortFunc(all, func(a, b Pending) int {
		return cmp.Or(cmp.Compare(a.Proxy, b.Proxy), cmp.Compare(a.Replica, b.Replica))
	})
	return all[:min(len(all), MaxNamed)]
}

// Stored is the item of /api/v1/stored: whether the leader has stored an object, by what it has read.
type Stored struct {
	Leads bool `json:"leads"` // this process leads; otherwise the fields below are empty
	// Revision is a revision of the store that contains the object's generation, and everything that was stored before;
	// 0: it is not stored yet.
	Revision   int64    `json:"revision"`
	Read       bool     `json:"read"`                 // the leader has read the object
	Generation int64    `json:"generation,omitempty"` // that was read; 0: its source states none
	Problems   []string `json:"problems,omitempty"`   // errors of the object
}

// StoredParameters are the parameters of /api/v1/stored.
var StoredParameters = []string{"kind", "group", "namespace", "name", "generation", "wait"}
