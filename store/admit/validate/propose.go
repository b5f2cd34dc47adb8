package validate

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	kjson "sigs.k8s.io/json"

	"navarch.io/navarch/store/admit/schema"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// Proposed is the effect that applying or deleting one object of Istio would have on the records of a snapshot. A
// record is the stored form of a part of an object.
type Proposed struct {
	ID       object.ID        // with the origin that the object has, or would have, in the snapshot
	Was, Is  []model.Record   // the object's records before and after the change; nil: no records
	Problems []object.Problem // errors and warnings
	// Refused is true if Problems has an error. There are four reasons: the webhook would refuse the object, its kind
	// or version is not Istio's, the object to delete does not exist, or the proposal names the object twice. For a
	// refused object, the fields Is and Was are equal, unless the proposal names the object twice.
	Refused bool
}

// Proposal lists the objects of a change that is previewed over a snapshot.
type Proposal struct {
	Objects []*object.Object // to create or update
	Removed []*object.Object // to delete; only their IDs and versions are read
	// Alone is true if the author of the objects may not see other objects. Warnings about other objects that an object
	// contradicts or refers to are left out. Errors do not name private objects of other tenants (see the type
	// discreet).
	Alone bool
}

// propose returns the records that a snapshot has of an object, and the records that it would have after the change.
// Objects of kinds that are not Istio's are refused, because the snapshot's records do not show how other objects
// depend on them. If the context ends, the result is incomplete. The parameter gone is true if the change deletes the
// object. The parameter alone is Proposal.Alone. The parameter others is the snapshot that the object is compared with.
func (w *Webhook) propose(ctx context.Context, known, others *mirror.Snapshot, o *object.Object, gone, alone bool) (d Proposed) {
	d.ID = o.ID
	if d.Was = recordsOf(known, &d.ID); len(d.Was) == 0 {
		d.ID.Origin = originIn(known)
	}
	unread, reason := normal.Unserved(o)
	switch {
	case reason != "":
		d.refuse(unread, problem.NotSupported, reason)
	case schema.Of(o.ID.Group, o.Version, o.ID.Kind) == nil:
		d.refuse("apiVersion", problem.NotSupported, "is not a kind and version of Istio: its effects on other objects are known "+
			"only for a configuration from files (--config-dir)")
	case gone && len(d.Was) == 0:
		d.refuse("", problem.NotFound, "does not exist")
	case gone:
		return d
	}
	if d.Refused {
		d.Is = d.Was
		return d
	}
	proposed := *o
	proposed.ID, proposed.Created = d.ID, createdAs(&d, o.Created)
	w.normalisedOver(ctx, known, others, &proposed, &d, alone)
	return d
}

// normalisedOver normalises an object, and sets its records and problems.
func (w *Webhook) normalisedOver(ctx context.Context, known, others *mirror.Snapshot, o *object.Object, d *Proposed, alone bool) {
	found := Found{whole: !alone}
	tree := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(o.JSON, &tree); err != nil {
		found.err("", problem.Unreadable, err.Error())
	} else if defined(ctx, tree, o, &found) {
		seen := proposalLookup{lookup{w.ownersAt(known), w.tenants, known.Mesh().Spec}, known}
		from := normal.Lookup(seen)
		if alone {
			others, from = nil, discreet{seen, o.ID.Namespace, w.normal.Isolation.On}
		}
		result, err := w.normal.ObjectUntil(ctx, o, from)
		if err != nil {
			return // the context has ended
		}
		w.assess(ctx, result, others, &found)
		d.Is = result.Records
		networked := slices.ContainsFunc(result.Refs, func(id object.ID) bool { return id.Kind == "Namespace" })
		if networked && known.Len(model.KindNetworkGateways) > 0 {
			found.warn("is previewed without the networks of its endpoints, which replicas do not know")
		}
	}
	for _, e := range found.Errors {
		d.refuse(e.Field, e.Code, e.Message)
	}
	for _, text := range found.Warnings {
		d.Problems = append(d.Problems, object.Problem{ID: d.ID, Code: problem.Invalid, Severity: problem.Warning, Message: text})
	}
	if d.Refused {
		d.Is = d.Was
	}
}

// refuse adds an error.
func (d *Proposed) refuse(field string, code problem.Code, message string) {
	d.Refused = true
	d.Problems = append(d.Problems, object.Problem{ID: d.ID, Field: field, Code: code, Severity: problem.Error, Message: message})
}

// recordsOf lists the records of an object of the config cluster, ordered by key, and sets the origin of its ID.
func recordsOf(s *mirror.Snapshot, id *object.ID) (all []model.Record) {
	for _, kind := range model.Kinds() {
		for r := range s.In(kind, id.Namespace) {
			of := normal.SourceObject(r.Meta().Key)
			if of.Origin.Cluster() == "" && of == of.SameOrigin(*id) {
				id.Origin = of.Origin
				all = append(all, r)
			}
		}
	}
	return all
}

// originIn returns the origin for a created object. It is the origin of some existing object of Istio, or else that of
// the config cluster's API server.
func originIn(s *mirror.Snapshot) origin.Origin {
	for _, kind := range []model.Kind{model.KindVirtualService, model.KindDestinationRule, model.KindServiceEntry, model.KindGateway,
		model.KindSidecar, model.KindPeerAuthentication, model.KindAuthorizationPolicy, model.KindMesh} {
		for r := range s.All(kind) {
			if of := r.Meta().Key.Origin; of.Cluster() == "" && (of.Source() == origin.Files || of.Source() == origin.Kube) {
				return of
			}
		}
	}
	return origin.New("", origin.Kube)
}

// createdAs returns the creation time of an object. An existing object keeps its time. A new object, or one whose time
// is unknown, has the stated time. If a new object states no time and does not come from files, the result is the
// present time.
func createdAs(d *Proposed, stated time.Time) time.Time {
	switch {
	case len(d.Was) > 0 && d.Was[0].Meta().Created != 0:
		return time.Unix(d.Was[0].Meta().Created, 0)
	case len(d.Was) > 0:
		return stated
	case stated.IsZero() && d.ID.Origin.Source() != origin.Files:
		return time.Now()
	}
	return stated
}

// proposalLookup is a lookup that finds fetched keys and automatic addresses in the records of a snapshot.
type proposalLookup struct {
	lookup
	known *mirror.Snapshot
}

var _ normal.Lookup = proposalLookup{}

// Keys implements normal.Lookup: it returns the keys that a stored rule of the namespace has from the same source.
// Without such a rule it returns the reason why there are no keys.
func (l proposalLookup) Keys(id object.ID) normal.Keys {
	for r := range l.known.In(model.KindRequestAuthentication, id.Namespace) {
		for _, rule := range model.Authentication(r.(*model.Policy)).GetJwtRules() {
			if rule.GetJwks() != "" && normal.KeysID(id.Namespace, normal.KeySourceOf(rule)) == id {
				return normal.Keys{Set: rule.GetJwks()}
			}
		}
	}
	return normal.Keys{Reason: "they are fetched once the object is applied"}
}

// Automatic implements normal.Lookup: it returns the automatic addresses of a ServiceEntry, by host. The map is empty
// without such addresses, and never nil.
func (l proposalLookup) Automatic(id object.ID) map[string][]string {
	all := map[string][]string{}
	for r := range l.known.Named(model.KindServiceEntry, id.Namespace, id.Name) {
		for _, of := range r.(*model.Service).Spec.GetAutomatic() {
			all[of.GetHost()] = of.GetAddresses()
		}
	}
	return all
}

// AutomaticAt implements normal.Lookup: it returns the id of the ServiceEntry with an automatic address. The id is zero
// without such a ServiceEntry.
func (l proposalLookup) AutomaticAt(id object.ID) object.ID {
	for r := range l.known.All(model.KindServiceEntry) {
		for _, of := range r.(*model.Service).Spec.GetAutomatic() {
			for _, text := range of.GetAddresses() {
				if a, err := netip.ParseAddr(text); err == nil && normal.AutomaticAtID(a) == id {
					return normal.AutomaticID(r.Meta().Key.Namespace, r.Meta().Key.Name)
				}
			}
		}
	}
	return object.ID{}
}

// Propose computes the effect of a change of objects on a snapshot, which stays unchanged. It returns the change to a
// snapshot with the next revision, and one result for each object. The results for Objects of the proposal come first,
// followed by those for Removed. Objects may refer to others of the proposal. If an object is refused or in the lists
// twice, or if ctx has ended, the change is empty: its New is the given snapshot. After the end of ctx, the results may
// be incomplete. The snapshot must not be nil.
func (w *Webhook) Propose(ctx context.Context, known *mirror.Snapshot, of Proposal) (mirror.Change, []Proposed) {
	var all []Proposed
	var puts []model.Record
	deletes := map[model.Key]bool{}
	seen := map[object.ID]bool{}
	refused := false
	for i, o := range slices.Concat(of.Objects, of.Removed) {
		d := w.propose(ctx, known, known, o, i >= len(of.Objects), of.Alone)
		if seen[o.ID] {
			d.refuse("", problem.Duplicate, "is named twice")
		}
		seen[o.ID] = true
		all, refused = append(all, d), refused || d.Refused
		for _, r := range d.Was {
			deletes[r.Meta().Key] = true
		}
		puts = append(puts, d.Is...)
	}
	for _, r := range puts {
		delete(deletes, r.Meta().Key)
	}
	if refused || ctx.Err() != nil {
		return mirror.Change{Old: known, New: known}, all
	}
	c := known.Apply(known.Revision()+1, puts, slices.Collect(maps.Keys(deletes)))
	if w.together(ctx, c, of, all) {
		return mirror.Change{Old: known, New: known}, all
	}
	return c, all
}

// together replaces the problems of proposed objects by those that the objects have together. An object may refer to
// another object of the proposal. Only objects with problems are validated again. The result is true if one of them is
// refused now.
func (w *Webhook) together(ctx context.Context, c mirror.Change, of Proposal, all []Proposed) (refused bool) {
	if len(all) < 2 {
		return false
	}
	for i, o := range of.Objects {
		if len(all[i].Problems) == 0 {
			continue
		}
		switch d := w.propose(ctx, c.Old, c.New, o, false, of.Alone); {
		case ctx.Err() != nil:
			return refused
		case d.Refused:
			all[i], refused = d, true
		default:
			all[i].Problems = d.Problems
		}
	}
	return refused
}
