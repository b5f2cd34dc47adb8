package kube

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/normal"
)

// Meshes contains the two ConfigMaps of the mesh configuration. Own belongs to this revision, and several revisions may
// share Shared (SHARED_MESH_CONFIG). Fields that Own does not set are taken from Shared. Meshes is not safe for
// concurrent use.
type Meshes struct {
	Own, Shared *corev1.ConfigMap // nil: the ConfigMap does not exist
	Wrong       string            // set by Merged: reason for which Shared is invalid; empty: Shared is valid, or does not exist
	good        string            // the last valid data.mesh of Shared
}

// Merged returns the merged ConfigMap. It returns nil if neither Own nor Shared exists. Only the key mesh is merged
// (normal.MergeMesh). Everything else is a copy of Own. Without Own the result has the given namespace and name.
// Without Shared the result is Own itself, which the caller must not change.
//
// While Shared is invalid, Wrong has the reason, and the last valid value of Shared is used. If Own is invalid, the
// result is a copy of Own.
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
		m.Wrong = "data.mesh: " + brief(err) + "; the last valid value stays in effect"
		shared = m.good
	}
	m.good = shared
	text, err := normal.MergeMesh(shared, own.Data["mesh"])
	if err != nil {
		return own // invalid: store/normal reports its problem
	}
	own.Data = maps.Clone(own.Data)
	if own.Data == nil {
		own.Data = map[string]string{}
	}
	own.Data["mesh"] = text
	return own
}

// sharedMesh returns the name of the shared ConfigMap. The name is empty if there is no such ConfigMap, or if Config
// names this revision's own ConfigMap.
func (s *Source) sharedMesh() string {
	if s.SharedMesh == s.meshName() {
		return ""
	}
	return s.SharedMesh
}

// putMesh applies the present state of one of the two ConfigMaps (nil: deleted), and reports whether the merged
// ConfigMap changed. The caller has locked Source.mu.
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
		// Once the selection is ready, the last discoverySelectors stay in effect.
		if !s.selection.ready {
			s.selectBy("")
		}
		return own.set(n, nil)
	}
	s.selectBy(merged.Data["mesh"])
	out, err := own.kind.object(s.origin, merged.DeepCopy(), merged.Labels)
	if err != nil {
		return false // unreachable: a ConfigMap can always be encoded as JSON
	}
	return own.set(n, out)
}
