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

// Handler answers the admission requests at /inject and below. It implements admit.Handler and admit.Chooser. It is
// safe for concurrent use.
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

// NewHandler returns a Handler that refuses Pods until Use is called. The function mesh returns the present mesh
// configuration with defaults, or nil while the configuration is unknown. The function native reports whether all
// kubelets that may run a Pod support sidecar containers. Its parameter cluster is the cluster in the URL path, or ""
// for the config cluster. Its parameter node is the Pod's node, or "" if the node is not known yet. The function
// proxies returns the present ProxyConfigs. If proxies is nil, there are no ProxyConfigs. The functions mesh and native
// must not be nil. All functions are called concurrently.
func NewHandler(mesh func() *meshv1alpha1.MeshConfig, native func(cluster, node string) bool, proxies ProxyConfigs) *Handler {
	return &Handler{mesh: mesh, native: native, proxies: proxies}
}

// Use sets the Settings for all later Pods. The Settings must not be modified afterwards. Their fields Mesh and Proxies
// are ignored, because the functions passed to NewHandler supply these values.
func (h *Handler) Use(s *Settings) { h.settings.Store(s) }

// Ready returns an error while no Settings are in use, or while the mesh configuration is unknown. Otherwise it returns
// nil, and Pods can be injected.
func (h *Handler) Ready() error {
	switch {
	case h.settings.Load() == nil:
		return errors.New("no injection configuration has been read yet")
	case h.mesh() == nil:
		return errors.New("the mesh configuration has not been read yet")
	}
	return nil
}

// Admit answers one request, and implements admit.Handler. The parameter path is the URL path for ParsePath. Admit
// injects Pods that are created, and Pod templates that istioctl kube-inject sends. All other requests are admitted
// unchanged. A Pod that Decide selects gets a JSON patch, and the response has the texts of Warnings. A Pod that Decide
// does not select is admitted unchanged.
//
// A Pod that cannot be injected is refused with the reason and code 422, because a Pod of the mesh without its proxy
// would be worse. The reasons are an invalid path, an object that is not a Pod or exceeds a bound, an error of Inject,
// a patch above 1 MiB, and the end of ctx. While Ready returns an error, all Pods and Pod templates are refused with
// code 503.
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

// creation reports whether a request of an API server is about the creation of a Pod.
func creation(r *admissionv1.AdmissionRequest) bool {
	return r.Kind.Group == "" && r.Kind.Kind == "Pod" && r.SubResource == "" && r.Operation == admissionv1.Create
}

// byHand reports whether istioctl kube-inject sent the request, to inject the Pod template of a workload. Such requests
// state neither the object's kind nor the operation (istio istioctl/pkg/kubeinject/kubeinject.go,
// ExternalInjector.Inject).
func byHand(r *admissionv1.AdmissionRequest) bool {
	return r.UID == "" && r.Operation == "" && r.Kind == metav1.GroupVersionKind{Group: admissionv1.GroupName, Version: "v1",
		Kind: "AdmissionRequest"}
}

// outcome is the result of a request.
type outcome struct {
	patch    []byte // nil if nothing changes
	warnings []string
	skipped  bool // the Pod gets no proxy
}

func (h *Handler) inject(ctx context.Context, path string, r *admissionv1.AdmissionRequest) (outcome, error) {
	if !creation(r) && !byHand(r) {
		return outcome{skipped: true}, nil // the webhook's rules may also select other requests
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
		return outcome{}, fmt.Errorf("the object is not a Pod: %w", err)
	}
	pod.ManagedFields = nil // the patch does not touch this field
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
		return outcome{}, fmt.Errorf("the JSON patch with the Pod's proxy has %d bytes, at most %d are allowed", len(patch),
			maxPatch)
	case ctx.Err() != nil:
		return outcome{}, ctx.Err()
	}
	return outcome{patch: patch, warnings: Warnings(pod, out)}, nil
}
