package inject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/admit"
	"navarch.io/navarch/store/obs"
)

// Handler answers what an API server asks at /inject and below. Safe for concurrent use.
type Handler struct {
	settings atomic.Pointer[Settings]
	mesh     func() *meshv1alpha1.MeshConfig
	native   func(cluster, node string) bool
	proxies  ProxyConfigs
}

var (
	_ admit.Handler = (*Handler)(nil)
	_ admit.Chooser = (*Handler)(nil)
)

// NewHandler makes one that refuses Pods until Use is called. mesh is the mesh's configuration as it is now, with its defaults; nil: it is not known
// yet. native says whether all kubelets that may run a Pod know sidecar containers, of a cluster
// (empty: the config cluster) and, where it is known already, of its node. proxies are the ProxyConfigs as they are now; nil: none count.
func NewHandler(mesh func() *meshv1alpha1.MeshConfig, native func(cluster, node string) bool, proxies ProxyConfigs) *Handler {
	return &Handler{mesh: mesh, native: native, proxies: proxies}
}

// Use is what Pods are injected by from now on; its Mesh and Proxies do not count.
func (h *Handler) Use(s *Settings) { h.settings.Store(s) }

// Ready says why Pods cannot be injected; nil: they can.
func (h *Handler) Ready() error {
	switch {
	case h.settings.Load() == nil:
		return errors.New("no injection configuration has been read yet")
	case h.mesh() == nil:
		return errors.New("the mesh configuration has not been read yet")
	}
	return nil
}

// Admit answers one request. Pods that cannot be injected are refused, with the reason: a Pod of the mesh without its proxy would be worse.
// It implements admit.Handler.
func (h *Handler) Admit(ctx context.Context, path string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	began := time.Now()
	defer func() { obs.InjectionTime.Observe(time.Since(began).Seconds()) }()
	obs.InjectionRequests.Inc()
	made, err := h.inject(ctx, path, r)
	if err != nil {
		obs.InjectionFailures.Inc()
		out := admit.Refuse(metav1.StatusReasonInvalid, "injection of the proxy: "+err.Error())
		if h.Ready() != nil {
			out.Result.Code, out.Result.Reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
		}
		return out
	}
	out := admit.Allow(made.warnings...)
	if made.skipped {
		obs.InjectionsSkipped.Inc()
		return out
	}
	obs.Injections.Inc()
	if made.patch != nil {
		kind := admissionv1.PatchTypeJSONPatch
		out.Patch, out.PatchType = made.patch, &kind
	}
	return out
}

// creation says whether a request is an API server's about a Pod that is created.
func creation(r *admissionv1.AdmissionRequest) bool {
	return r.Kind.Group == "" && r.Kind.Kind == "Pod" && r.SubResource == "" && r.Operation == admissionv1.Create
}

// byHand says whether a request is one of istioctl kube-inject, which has a Pod's template injected: it says nothing of the object's kind, nor of what
// is done with it (istio istioctl/pkg/kubeinject/kubeinject.go, ExternalInjector.Inject).
func byHand(r *admissionv1.AdmissionRequest) bool {
	return r.UID == "" && r.Operation == "" && r.Kind == metav1.GroupVersionKind{Group: admissionv1.GroupName, Version: "v1",
		Kind: "AdmissionRequest"}
}

// outcome is the answer to a request.
type outcome struct {
	patch    []byte // nil: nothing is to be changed
	warnings []string
	skipped  bool // the Pod gets no proxy
}

func (h *Handler) inject(ctx context.Context, path string, r *admissionv1.AdmissionRequest) (outcome, error) {
	if !creation(r) && !byHand(r) {
		return outcome{skipped: true}, nil // a webhook that was configured for more than the creation of Pods
	}
	if err := h.Ready(); err != nil {
		return outcome{}, err
	}
	s := *h.settings.Load()
	s.Mesh, s.Proxies = h.mesh(), h.proxies
	where, err := ParsePath(path)
	if err != nil {
		return outcome{}, err
	}
	head, err := headOf(r.Object.Raw)
	if err != nil {
		return outcome{}, err
	}
	if d := s.Decide(head.pod(), r.Namespace); !d.Inject {
		return outcome{skipped: true}, nil
	}
	if err := head.check(); err != nil {
		return outcome{}, err
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(r.Object.Raw, pod); err != nil {
		return outcome{}, fmt.Errorf("the object is no Pod: %w", err)
	}
	pod.ManagedFields = nil // the patch does not touch them
	native := h.native(where[clusterVariable], pod.Spec.NodeName)
	out, err := s.Inject(ctx, Request{Pod: pod, Namespace: r.Namespace, Path: where, Native: native})
	if err != nil {
		return outcome{}, err
	}
	patch, err := Patch(pod, out)
	switch {
	case err != nil:
		return outcome{}, err
	case len(patch) > maxPatch:
		return outcome{}, fmt.Errorf("the JSON patch that gives the Pod its proxy has %d bytes, and at most %d are answered", len(patch),
			maxPatch)
	case ctx.Err() != nil:
		return outcome{}, ctx.Err()
	}
	return outcome{patch: patch, warnings: Warnings(pod, out)}, nil
}
