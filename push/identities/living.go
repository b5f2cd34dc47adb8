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

// young is the least age of a credential that is refused for a missing record of its Pod or service account. The age is
// counted back from the time up to which its cluster has been read. Clocks differ, and a Pod has a record only once it
// has an address.
const young = time.Minute

// Living compares callers with the Pods and service accounts in the configuration, and refuses callers whose objects
// were deleted. The objects of a credential existed when it was issued, and the records contain all objects that
// existed at a later time; so an object without a record was deleted.
type Living struct {
	Snapshot func() *mirror.Snapshot        // the newest snapshot; may return nil
	Sound    func() bool                    // whether the snapshot equals the stored state, as far as is known
	Read     func(cluster string) asof.Read // the time up to which a cluster has been read, by its name in origins
	Cluster  string                         // name of the config cluster in callers
}

// Refused returns the reason why a caller is refused: its Pod or service account was deleted. It returns nil if they
// exist, or if that is unknown. The error matches attest.ErrIdentity.
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

// compare returns the fault of an object in a credential, or "". With missing, an object without a record counts as
// deleted.
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

// hasNamespace reports whether a namespace exists, also if its objects are not read.
func hasNamespace(s *mirror.Snapshot, at origin.Origin, namespace string) bool {
	_, is := s.Get(model.Key{Kind: model.KindNamespace, Origin: at, Name: namespace})
	return is
}

// hasAccounts reports whether the objects of a namespace are read: Kubernetes creates a service account in each
// namespace.
func hasAccounts(s *mirror.Snapshot, at origin.Origin, namespace string) bool {
	for r := range s.In(model.KindServiceAccount, namespace) {
		if r.Meta().Key.Origin == at {
			return true
		}
	}
	return false
}
