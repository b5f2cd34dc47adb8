package inject

import (
	"encoding/json"
	"fmt"

	"istio.io/api/annotation"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/scan"
)

// Bounds of a Pod with a proxy. Variables, mounts and ports are sums over all its containers. A larger Pod would delay
// the creation of other Pods.
const (
	maxContainers = 256
	maxLists      = 4096    // for each of: variables, mounts, volumes, ports
	maxPairs      = 4096    // labels and annotations together
	maxDecided    = 100_000 // JSON values of labels, and separately of annotations; also for a Pod without a proxy
	// maxAnnotations bounds the bytes of annotations, as API servers do (k8s.io/apimachinery/pkg/api/validation,
	// TotalAnnotationSizeLimitB).
	maxAnnotations = 256 << 10
)

// head contains the fields of a Pod that Settings.Decide reads, and the sizes of the Pod's lists. The head is decoded
// before the whole Pod, because a list of a few hundred kilobytes may decode to hundreds of megabytes.
type head struct {
	Metadata struct {
		Labels      pairs `json:"labels"`
		Annotations pairs `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork         bool       `json:"hostNetwork"`
		InitContainers      containers `json:"initContainers"`
		Containers          containers `json:"containers"`
		EphemeralContainers containers `json:"ephemeralContainers"`
		Volumes             length     `json:"volumes"`
	} `json:"spec"`
}

// pairs holds labels or annotations. Labels and annotations decide whether a Pod gets a proxy, so all are decoded, up
// to maxDecided.
type pairs map[string]string

// UnmarshalJSON implements json.Unmarshaler. It fails if the text has more than maxDecided JSON values, including the
// object itself. It also fails if the text is nested too deeply, or is neither an object of strings nor null.
func (p *pairs) UnmarshalJSON(text []byte) error {
	n, err := scan.Values(text)
	if err != nil {
		return fmt.Errorf("labels or annotations: %w", err)
	}
	if n > maxDecided {
		return fmt.Errorf("more than %d labels or annotations", maxDecided)
	}
	return json.Unmarshal(text, (*map[string]string)(p))
}

// length is the length of a list. If a key is repeated, it is the sum of the lengths of the key's lists.
type length int

// UnmarshalJSON implements json.Unmarshaler. It adds the list's length to l. It fails for a value that is neither a
// list nor null, or is nested too deeply.
func (l *length) UnmarshalJSON(text []byte) error {
	n, err := scan.Elements(text)
	*l += length(n)
	return err
}

// containers counts containers, and sums the lengths of their lists. Beyond maxContainers only the containers
// themselves are counted.
type containers struct{ number, variables, mounts, ports length }

// UnmarshalJSON implements json.Unmarshaler. It adds the numbers of the list's containers to c. It fails for a value
// that is neither a list of objects nor null, or is nested too deeply. It also fails if one of the counted fields is
// neither a list nor null.
func (c *containers) UnmarshalJSON(text []byte) error {
	if err := c.number.UnmarshalJSON(text); err != nil || c.number > maxContainers {
		return err
	}
	var list []struct {
		Env           length `json:"env"`
		EnvFrom       length `json:"envFrom"`
		VolumeMounts  length `json:"volumeMounts"`
		VolumeDevices length `json:"volumeDevices"`
		Ports         length `json:"ports"`
	}
	err := json.Unmarshal(text, &list)
	for _, one := range list {
		c.variables += one.Env + one.EnvFrom
		c.mounts += one.VolumeMounts + one.VolumeDevices
		c.ports += one.Ports
	}
	return err
}

func (c *containers) add(o containers) {
	c.number, c.variables, c.mounts, c.ports = c.number+o.number, c.variables+o.variables, c.mounts+o.mounts, c.ports+o.ports
}

// headOf decodes the head of a Pod. It fails if the object is not a Pod, or has too many labels or annotations.
func headOf(raw []byte) (h head, err error) {
	if err := json.Unmarshal(raw, &h); err != nil {
		return h, fmt.Errorf("the object is not a Pod: %w", err)
	}
	return h, nil
}

// pod returns a Pod with the fields of the head, which Settings.Decide needs.
func (h *head) pod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: h.Metadata.Labels, Annotations: h.Metadata.Annotations},
		Spec: corev1.PodSpec{HostNetwork: h.Spec.HostNetwork}}
}

// check returns an error if the Pod exceeds a bound. Containers, volumes and mounts in its annotations count too.
func (h *head) check() error {
	all, volumes := h.Spec.Containers, h.Spec.Volumes
	all.add(h.Spec.InitContainers)
	all.add(h.Spec.EphemeralContainers)
	bytes := 0
	for name, value := range h.Metadata.Annotations {
		bytes += len(name) + len(value)
	}
	if bytes > maxAnnotations {
		return fmt.Errorf("the Pod's annotations have %d bytes; a Pod with a proxy may have at most %d", bytes, maxAnnotations)
	}
	var own struct{ Containers, InitContainers containers }
	// Invalid JSON is refused later, with the annotation's name.
	_ = json.Unmarshal([]byte(h.Metadata.Annotations[annotation.ProxyOverrides.Name]), &own)
	all.add(own.Containers)
	all.add(own.InitContainers)
	volumes += length(members(h.Metadata.Annotations[annotation.SidecarUserVolume.Name]))
	all.mounts += length(members(h.Metadata.Annotations[annotation.SidecarUserVolumeMount.Name]))
	for _, one := range []struct {
		what    string
		is, may length
	}{{"labels and annotations", length(len(h.Metadata.Labels) + len(h.Metadata.Annotations)), maxPairs},
		{"containers", all.number, maxContainers}, {"environment variables", all.variables, maxLists}, {"volume mounts", all.mounts, maxLists},
		{"volumes", volumes, maxLists}, {"ports", all.ports, maxLists}} {
		if one.is > one.may {
			return fmt.Errorf("the Pod has %d %s; a Pod with a proxy may have at most %d", one.is, one.what, one.may)
		}
	}
	return nil
}

// members counts the elements of a JSON list, or the members of a JSON object. It returns 0 for other texts.
func members(text string) int {
	n := 0
	s := scan.New([]byte(text))
	if s.Next() == '{' {
		_ = s.Object(func(string) error { n++; return s.Skip() }) // invalid JSON is refused where it is used
		return n
	}
	n, _ = scan.Elements([]byte(text))
	return n
}

// Concerns reports whether a request creates a Pod that gets a proxy, or comes from istioctl kube-inject for such a
// Pod. It implements admit.Chooser. The server calls Concerns only for objects that are too expensive to decode. If the
// result is false, the server admits the object without a call of Admit. For a creation or kube-inject, Concerns also
// returns true while no Settings are in use, and if the Pod's labels, annotations or lists cannot be decoded.
func (h *Handler) Concerns(r *admissionv1.AdmissionRequest) bool {
	settings := h.settings.Load()
	if !creation(r) && !byHand(r) {
		return false
	}
	if settings == nil {
		return true
	}
	head, err := headOf(r.Object.Raw)
	return err != nil || settings.Decide(head.pod(), r.Namespace).Inject
}
