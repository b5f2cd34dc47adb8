package kube

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/normal"
)

// Meshes is the mesh configuration: the ConfigMap of this revision, and the one that several have in common (SHARED_MESH_CONFIG), which stands
// where the first says nothing.
type Meshes struct {
	Own, Shared *corev1.ConfigMap // nil: there is none
	Wrong       string            // why the newest Shared cannot be read
	good        string            // data.mesh of Shared, as it could be read last
}

// Merged returns both as one ConfigMap, that of this revision; nil: there is neither. It keeps what was good of Shared.
func (m *Meshes) Merged(namespace, name string) *corev1.ConfigMap {
	if m.Shared == nil {
		m.good, m.Wrong = "", ""
		return m.Own
	}
	own := m.Own
	if own == nil {
		own = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	own = own.DeepCopy()
	shared := m.Shared.Data["mesh"]
	m.Wrong = ""
	if _, err := normal.MergeMesh(shared, ""); err != nil {
		m.Wrong = "data.mesh: " + brief(err) + "; what was good of it before stands"
		shared = m.good
	}
	m.good = shared
	text, err := normal.MergeMesh(shared, own.Data["mesh"])
	if err != nil {
		return own // whose problem is reported by who reads it
	}
	own.Data = maps.Clone(own.Data)
	if own.Data == nil {
		own.Data = map[string]string{}
	}
	own.Data["mesh"] = text
	return own
}

// sharedMesh is the name of the ConfigMap that several revisions have in common; empty: there is none.
func (s *Source) sharedMesh() string {
	if s.SharedMesh == s.meshName() {
		return ""
	}
	return s.SharedMesh
}

// putMesh takes one of the ConfigMaps as it is now (nil: it is not there); false: that is how it was. With the lock.
func (f *follower) putMesh(o *corev1.ConfigMap) bool {
	s := f.source
	if f.kind.name == s.meshName() {
		s.meshes.Own = o
	} else {
		s.meshes.Shared = o
	}
	own := s.kinds[s.meshConfiguration(s.meshName()).id()]
	n := name{s.SystemNamespace, s.meshName()}
	merged := s.meshes.Merged(n.namespace, n.name)
	if merged == nil {
		if !s.selection.ready { // else those of the last one stand, as the rest of it does (store/ingest)
			s.selectBy("")
		}
		return own.set(n, nil)
	}
	s.selectBy(merged.Data["mesh"])
	out, err := own.kind.object(s.origin, merged.DeepCopy(), merged.Labels)
	if err != nil {
		return false // a ConfigMap is always JSON
	}
	return own.set(n, out)
}
