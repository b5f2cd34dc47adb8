package identities

import (
	"bytes"
	"fmt"
	"time"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/store/asof"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/origin"
)

// young is a safety margin. A missing record proves a deletion only if the records are newer than the credential by
// more than this margin. One reason is that clocks differ. Another reason is that a new Pod has no record until it has
// an address.
const young = time.Minute

// Living refuses callers whose Pod or service account was deleted. The Pod and the service account existed when the
// caller's credential was issued. The records contain all objects that existed at a later time. So an object without a
// record was deleted. All function fields have to be set. Living is safe for concurrent use if these functions are.
type Living struct {
	Snapshot func() *mirror.Snapshot        // returns the newest snapshot, or nil
	Sound    func() bool                    // reports whether the snapshot is up to date, as far as this process knows
	Read     func(cluster string) asof.Read // returns how far a cluster has been read; "" is the config cluster
	Cluster  string                         // name of the config cluster, in the form of Caller.Cluster
}

// Refused returns an error if the Pod or the service account of a caller was deleted, or replaced by a new object of
// the same name. The error matches attest.ErrIdentity. For a caller without a Pod only the service account counts.
//
// Refused returns nil if the Pod and the service account exist, or if their existence is not known. The existence is
// unknown if the snapshot is missing or outdated, or if the caller has no cluster or no time of issue. It is also
// unknown if the records of the cluster are not newer than the credential. An object without a record counts as deleted
// only under two conditions. First, Navarch reads the objects of its namespace, or the namespace does not exist.
// Second, the records are more than a minute newer than the credential. If Navarch may not read service accounts, only
// the Pod counts.
func (l *Living) Refused(who attest.Caller) error {
	s := l.Snapshot()
	if s == nil || who.Cluster == "" || who.Issued.IsZero() || !l.Sound() {
		return nil
	}
	cluster := who.Cluster
	if cluster == l.Cluster {
		cluster = ""
	}
	read := l.Read(cluster)
	if !who.Issued.Before(read.Until) { // the records may be older than the credential
		return nil
	}
	at := origin.New(cluster, origin.Kube)
	account := func() (uid []byte, there bool) {
		r, ok := s.Get(model.Key{Kind: model.KindServiceAccount, Origin: at, Namespace: who.Namespace, Name: who.ServiceAccount})
		if !ok {
			return nil, false
		}
		return r.(*model.ServiceAccount).Spec.GetUid(), true
	}
	pod := func() (uid []byte, there bool) {
		r, ok := s.Get(model.Key{Kind: model.KindWorkload, Origin: at, Namespace: who.Namespace, Name: who.Pod})
		if !ok {
			return nil, false
		}
		return r.(*model.Workload).Spec.GetUid(), true
	}
	// A missing record proves a deletion only if the namespace is read, or does not exist.
	covered := read.Everywhere || hasAccounts(s, at, who.Namespace) ||
		read.Namespaces && !hasNamespace(s, at, who.Namespace)
	missing := read.Until.Sub(who.Issued) > young && covered
	if wrong := compare(who.AccountUID, missing, account); wrong != "" && !read.NoAccounts {
		return fmt.Errorf("%w: service account %s/%s of the credential %s", attest.ErrIdentity, who.Namespace, who.ServiceAccount, wrong)
	}
	if who.Pod == "" {
		return nil
	}
	if wrong := compare(who.PodUID, missing, pod); wrong != "" {
		return fmt.Errorf("%w: Pod %.253s/%.253s of the credential %s", attest.ErrIdentity, who.Namespace, who.Pod, wrong)
	}
	return nil
}

// compare returns the reason why an object that a credential names is not accepted, or "". The function record returns
// the object's UID, and false if there is no record of the object. If missing is set, an object without a record counts
// as deleted.
func compare(uid string, missing bool, record func() (uid []byte, there bool)) string {
	is, there := record()
	switch {
	case !there && missing:
		return "no longer exists"
	case there && uid != "" && len(is) > 0 && !bytes.Equal(is, model.UID(uid)):
		return "was deleted, and a new object has its name"
	}
	return ""
}

// hasNamespace reports whether a namespace exists. It may exist although the objects in it are not read.
func hasNamespace(s *mirror.Snapshot, at origin.Origin, namespace string) bool {
	_, is := s.Get(model.Key{Kind: model.KindNamespace, Origin: at, Name: namespace})
	return is
}

// hasAccounts reports whether there are records of service accounts in a namespace. Kubernetes creates a service
// account in each namespace. So if there are no such records, the objects of the namespace are not read.
func hasAccounts(s *mirror.Snapshot, at origin.Origin, namespace string) bool {
	for r := range s.In(model.KindServiceAccount, namespace) {
		if r.Meta().Key.Origin == at {
			return true
		}
	}
	return false
}
