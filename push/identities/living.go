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

// young is how old a credential has to be, before the time up to which its cluster has been read, to be refused because there is no record
// of its Pod or its service account: clocks differ, and a Pod has a record only once it has an address.
const young = time.Minute

// Living compares callers with the Pods and service accounts that the configuration has. Who it says is gone was deleted: a credential names
// objects that were there when it was issued, and the records have everything that was there at a later time.
type Living struct {
	Snapshot func() *mirror.Snapshot
	Sound    func() bool                    // the snapshot is what is stored, as far as is known
	Read     func(cluster string) asof.Read // up to when a cluster has been read, by its name in origins
	Cluster  string                         // what the config cluster is called by callers
}

// Refused says why a caller is served no longer; nil: they are, or nothing is known. An error matches attest.ErrIdentity.
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
	if !who.Issued.Before(read.Until) { // be the records older than the credential
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
	missing := read.Until.Sub(who.Issued) > young && (read.Everywhere || hasAccounts(s, at, who.Namespace) || read.Namespaces && !hasNamespace(s, at, who.Namespace))
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

// compare says what is wrong with an object that a credential names; missing: what has no record is not there.
func compare(uid string, missing bool, record func() (uid []byte, there bool)) string {
	is, there := record()
	switch {
	case !there && missing:
		return "is not there any more"
	case there && uid != "" && len(is) > 0 && !bytes.Equal(is, model.UID(uid)):
		return "was deleted, and another one has its name"
	}
	return ""
}

// hasNamespace says whether a namespace is there, be it read or not.
func hasNamespace(s *mirror.Snapshot, at origin.Origin, namespace string) bool {
	_, is := s.Get(model.Key{Kind: model.KindNamespace, Origin: at, Name: namespace})
	return is
}

// hasAccounts says whether a namespace is read: where it is, Kubernetes makes a service account in it.
func hasAccounts(s *mirror.Snapshot, at origin.Origin, namespace string) bool {
	for r := range s.In(model.KindServiceAccount, namespace) {
		if r.Meta().Key.Origin == at {
			return true
		}
	}
	return false
}
