package kube

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/normal"
)

// meshes is the mesh configuration: the ConfigMap of this revision, and the one that several have in common (SHARED_MESH_CONFIG), which stands
// where the first says nothing.
type meshes struct {
	own, shared *corev1.ConfigMap // nil: there is none
	good        string            // data.mesh of shared, as it could be read last
	wrong       string            // why the newest one cannot
}

// merged is what is emitted as the ConfigMap of this revision; nil: there is neither.
func (m *meshes) merged(namespace, name string) *corev1.ConfigMap {
	if m.shared == nil {
		m.good, m.wrong = "", ""
		return m.own
	}
	own := m.own
	if own == nil {
		own = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	own = own.DeepCopy()
	shared := m.shared.Data["mesh"]
	m.wrong = ""
	if _, err := normal.MergeMesh(shared, ""); err != nil {
		m.wrong = "data.mesh: " + brief(err) + "; what was good of it before stands"
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
		s.meshes.own = o
	} else {
		s.meshes.shared = o
	}
	own := s.kinds[s.meshConfiguration(s.meshName()).id()]
	n := name{s.SystemNamespace, s.meshName()}
	merged := s.meshes.merged(n.namespace, n.name)
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
