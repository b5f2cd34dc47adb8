package injection

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	proxyconfigv1 "istio.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/status"
)

// ProxyConfigs returns the specs of the ProxyConfigs of a namespace in a snapshot, the oldest first. The caller must
// not change the specs. s must not be nil.
func ProxyConfigs(s *mirror.Snapshot, namespace string) (all []*proxyconfigv1.ProxyConfig) {
	var found []*model.ProxyConfig
	for r := range s.In(model.KindProxyConfig, namespace) {
		found = append(found, r.(*model.ProxyConfig))
	}
	return inOrder(found)
}

// inOrder returns the specs of ProxyConfigs, the oldest first.
func inOrder(found []*model.ProxyConfig) (all []*proxyconfigv1.ProxyConfig) {
	slices.SortFunc(found, func(a, b *model.ProxyConfig) int { return a.Older(&b.Head) })
	for _, c := range found {
		all = append(all, c.Spec)
	}
	return all
}

// FollowedProxyConfigs follows the API server's objects of kind ProxyConfig for a process that does not read the stored
// records. While the newest version of an object is invalid, its last valid version stays in use. Safe for concurrent
// use.
type FollowedProxyConfigs struct {
	normal   *normal.Normalizer
	revision string // objects with another value of the revision label are ignored
	log      *slog.Logger

	mu    sync.Mutex                               // guards the fields below; no other lock is taken under it
	known map[string]map[string]*model.ProxyConfig // by namespace and name
}

var _ status.Seen[unstructured.Unstructured] = (*FollowedProxyConfigs)(nil)

// NewFollowedProxyConfigs returns an empty FollowedProxyConfigs. Objects whose label istio.io/rev has another value
// than revision are ignored; objects without the label count. An empty revision means "default".
func NewFollowedProxyConfigs(n *normal.Normalizer, revision string, log *slog.Logger) *FollowedProxyConfigs {
	return &FollowedProxyConfigs{normal: n, revision: cmp.Or(revision, "default"), log: log, known: map[string]map[string]*model.ProxyConfig{}}
}

// In returns the specs of the ProxyConfigs of a namespace, the oldest first; nil: the namespace has no valid
// ProxyConfig, or the objects were not listed yet. The caller must not change the specs.
func (f *FollowedProxyConfigs) In(namespace string) []*proxyconfigv1.ProxyConfig {
	f.mu.Lock()
	defer f.mu.Unlock()
	return inOrder(slices.Collect(maps.Values(f.known[namespace])))
}

// Replace implements status.Seen: it receives all objects.
func (f *FollowedProxyConfigs) Replace(all map[status.Key]status.Found[unstructured.Unstructured]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.known
	f.known = map[string]map[string]*model.ProxyConfig{}
	for k, found := range all {
		f.put(k, before[k.Namespace][k.Name], found.Object)
	}
}

// Observe implements status.Seen: it receives one changed or deleted object.
func (f *FollowedProxyConfigs) Observe(k status.Key, found status.Found[unstructured.Unstructured]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.known[k.Namespace][k.Name]
	if delete(f.known[k.Namespace], k.Name); found.Object != nil {
		f.put(k, before, found.Object)
	}
}

// put stores an object, unless it belongs to another revision. before is the object's last valid version, or nil. The
// caller holds the lock.
func (f *FollowedProxyConfigs) put(k status.Key, before *model.ProxyConfig, u *unstructured.Unstructured) {
	if revision, stated := u.GetLabels()[status.RevisionLabel]; stated && revision != f.revision {
		return
	}
	read, err := f.read(k, u)
	if err != nil {
		f.log.Warn("a ProxyConfig is not valid: its last valid version stays in effect, if there was one",
			obs.KeyObject, k.Namespace+"/"+k.Name, obs.KeyError, err)
		read = before
	}
	if read == nil {
		return
	}
	if f.known[k.Namespace] == nil {
		f.known[k.Namespace] = map[string]*model.ProxyConfig{}
	}
	f.known[k.Namespace][k.Name] = read
}

// read converts an object to a record. The error has the object's problems.
func (f *FollowedProxyConfigs) read(k status.Key, u *unstructured.Unstructured) (*model.ProxyConfig, error) {
	raw, err := json.Marshal(u)
	if err != nil {
		return nil, err
	}
	gvk := u.GroupVersionKind()
	result := f.normal.Object(&object.Object{ID: object.ID{Group: gvk.Group, Kind: gvk.Kind, Namespace: k.Namespace, Name: k.Name},
		Version: gvk.Version,
		Created: u.GetCreationTimestamp().UTC(), UID: string(u.GetUID()), JSON: raw}, nil)
	for _, r := range result.Records {
		if c, is := r.(*model.ProxyConfig); is {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%v", result.Problems)
}
