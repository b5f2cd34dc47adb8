package ingest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/store/credential"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// credentials stores when the certificates of Secrets and ConfigMaps expire, and the problems of these objects. The
// inventory owns it.
type credentials struct {
	expire map[object.ID]time.Time        // ends of validity of the certificates that have not expired yet
	faulty map[object.ID][]object.Problem // Secrets and ConfigMaps with problems
	kept   map[object.ID]time.Time        // ends of validity of the stored certificates that keepValid keeps in use
	moved  bool                           // faulty has changed since the last call of misused
}

func newCredentials() *credentials {
	return &credentials{expire: map[object.ID]time.Time{}, faulty: map[object.ID][]object.Problem{}}
}

// isCredential reports whether an object may have TLS content.
func isCredential(id object.ID) bool {
	return id.Group == "" && (id.Kind == "Secret" || id.Kind == "ConfigMap")
}

// set replaces the problems of an object.
func (c *credentials) set(id object.ID, problems []object.Problem) {
	if !isCredential(id) || slices.Equal(c.faulty[id], problems) {
		return
	}
	c.moved = true
	if c.faulty[id] = problems; len(problems) == 0 {
		delete(c.faulty, id)
	}
}

// remove forgets an object.
func (c *credentials) remove(id object.ID) {
	c.set(id, nil)
	delete(c.expire, id)
	delete(c.kept, id)
}

// Passed is an event that reports the present time. Loop.Run applies it every minute.
type Passed struct{ Now time.Time }

func (Passed) event() {}

// applyPassed normalises objects again if their certificate has expired.
func (s *State) applyPassed(now time.Time) {
	w := s.inventory
	for id, until := range w.credentials.expire {
		if !now.Before(until) {
			w.objects.Mark(id)
		}
	}
	if w.objects.Marked() {
		w.yielder, w.heard = loop.NewYielder(), now
		w.renew()
		s.collect()
	}
}

// lapse adds a problem to the result of an object with an expired certificate. If an earlier, valid certificate of the
// object is in use, lapse marks the result as spoiled (unusable). The earlier certificate then stays in use. If there
// is no such certificate, the expired one is used, as in Istio. Clients that do not verify the certificate continue to
// work, and all proxies serve the same certificate. For a certificate that has not expired, lapse stores the time of
// expiry, at which applyPassed checks the object again.
func (w *inventory) lapse(n *node, r *normal.Result) {
	id := n.ID()
	if !isCredential(id) {
		return
	}
	delete(w.credentials.expire, id)
	switch {
	case r.Until.IsZero():
		return
	case w.heard.Before(r.Until): // also true if the time is not known (zero)
		w.credentials.expire[id] = r.Until
		return
	}
	one := object.Problem{ID: id, Location: w.location(id), Field: r.UntilAt, Code: problem.Invalid, Severity: problem.Warning,
		Message: "the certificate has expired at " + r.Until.UTC().Format(time.RFC3339)}
	if until, valid := w.validUntil(n); valid {
		if !until.IsZero() {
			w.credentials.expire[id] = until
		}
		one.Severity = problem.Error
		one.Message += "; the certificate before it is valid, and stays in use"
		r.Spoiled, r.Records, r.Private = true, nil, nil
	} else {
		one.Message += "; it is used all the same, because no valid one is known"
	}
	r.Problems = append(slices.Clone(r.Problems), one)
}

// validUntil reports whether a certificate of an object is in use and has not expired. The first result is the end of
// the certificate's validity. It is zero if the object has adopted a stored certificate whose end of validity is
// unknown.
func (w *inventory) validUntil(n *node) (until time.Time, valid bool) {
	for _, r := range n.Entry.records {
		if s, is := r.(*model.Secret); is {
			until = credential.Until(s.Spec.GetChain())
			return until, until.After(w.heard)
		}
	}
	until, known := w.credentials.kept[n.ID()]
	return until, len(n.Entry.few().adopted) > 0 && (!known || until.After(w.heard))
}

// keepValid marks an object as spoiled (unusable) if its certificate has expired and the stored one is valid. The
// stored certificate then stays in use. keepValid returns the marked objects. The method reportKept normalises them
// once they have adopted the stored records.
func (s *State) keepValid(e Loaded) (kept []object.ID) {
	w := s.inventory
	w.credentials.kept = map[object.ID]time.Time{}
	for key, stored := range e.Secrets {
		n, end := w.objects.Get(w.sourceOf(key)), credential.Until(stored.Spec.GetChain())
		if n == nil || n.Entry.spoiled || len(n.Entry.records) == 0 || !end.After(e.Now) {
			continue
		}
		now, is := n.Entry.records[0].(*model.Secret)
		if !is {
			continue
		}
		if until := credential.Until(now.Spec.GetChain()); !until.IsZero() && !until.After(e.Now) {
			w.setRecords(n, nil, nil)
			n.Entry.spoiled = true
			w.credentials.kept[n.ID()] = end
			kept = append(kept, n.ID())
		}
	}
	return kept
}

// reportKept normalises again the objects in kept (the result of keepValid), to report their expired certificates.
func (s *State) reportKept(kept []object.ID, now time.Time) {
	w := s.inventory
	if len(kept) == 0 {
		return
	}
	for _, id := range kept {
		w.objects.Mark(id)
	}
	w.heard = now
	w.renew()
	w.heard = time.Time{}
}

// target identifies a Secret or ConfigMap of a cluster. The source of the object (API server or files) does not matter.
type target struct{ kind, cluster, namespace, name string }

func targetOf(id object.ID) target {
	return target{id.Kind, id.Origin.Cluster(), id.Namespace, id.Name}
}

// misused returns a problem for each object that names a Secret or ConfigMap with a problem, in no order. If the named
// object is in another namespace, the message does not describe the problem of that object.
func (w *inventory) misused() (all []object.Problem) {
	f := w.references
	f.moved, w.credentials.moved = false, false
	faulty, named := map[target]object.ID{}, map[string]bool{}
	for id := range w.credentials.faulty {
		faulty[targetOf(id)] = id
		named[id.Name] = true
	}
	if len(faulty) == 0 {
		return nil
	}
	found, reach := map[object.Problem]bool{}, map[string][]place{}
	for key, u := range f.uses {
		by := normal.SourceObject(key)
		for _, one := range u.all {
			if !named[one.Name] {
				continue
			}
			for _, to := range f.targetsOrOwn(reach, one, by) {
				id, is := faulty[targetOf(to)]
				if !is {
					continue
				}
				for _, p := range w.credentials.faulty[id] {
					found[w.misuse(by, one.Field, p)] = true
				}
			}
		}
	}
	return slices.Collect(maps.Keys(found))
}

// targetsOrOwn returns the Secrets or ConfigMaps that a use refers to. The parameter by is the object that states the
// use. While no workload is known, as in a folder with configuration alone, the namespace of a Secret is the first of
// these that is known: the field Of of the use, its field Namespace, the namespace of the object.
func (f *references) targetsOrOwn(reach map[string][]place, one SecretUse, by object.ID) []object.ID {
	switch {
	case len(f.sets) > 0:
		return f.targets(reach, one)
	case one.ConfigMap:
		return []object.ID{{Kind: "ConfigMap", Namespace: one.Of, Name: one.Name}}
	}
	return []object.ID{{Kind: "Secret", Namespace: cmp.Or(one.Of, one.Namespace, by.Namespace), Name: one.Name}}
}

// misuse returns the problem of an object that names another object. The parameter p is the problem of the named
// object.
func (w *inventory) misuse(by object.ID, field string, p object.Problem) object.Problem {
	why := p.Message
	if p.Field != "" {
		why = p.Field + ": " + why
	}
	if by.Namespace != p.ID.Namespace {
		why = "has a problem, which is reported for that object itself"
	}
	return object.Problem{ID: by, Location: w.location(by), Field: field, Code: p.Code, Severity: problem.Warning,
		Message: fmt.Sprintf("%s %s/%s: %s", p.ID.Kind, p.ID.Namespace, p.ID.Name, why)}
}

// unchecked reports whether problems between objects, or references, may have changed since they were computed.
func (w *inventory) unchecked() bool {
	return w.crossCheck.due || w.references.outdated || w.references.moved || w.credentials.moved
}
