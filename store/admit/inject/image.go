package inject

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"istio.io/api/annotation"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// stockImage is the default name of the images of the proxy and of its init container.
const stockImage = "proxyv2"

// image returns the image HUB/NAME:TAG according to the Helm values. The type of image (such as distroless or debug)
// becomes the suffix of the tag, and replaces a suffix -distroless or -debug. The type default removes such a suffix.
// The Pod's annotation has precedence over the type in the proxy's configuration, which has precedence over the value
// global.variant.
func (v values) image(name string, proxy *meshv1alpha1.ProxyConfig, annotations map[string]string) string {
	kind := v.Global.Variant
	if proxy.GetImage() != nil {
		kind = proxy.GetImage().GetImageType()
	}
	if asked, there := annotations[annotation.SidecarProxyImageType.Name]; there {
		kind = asked
	}
	tag := ""
	if v.Global.Tag != nil {
		tag = fmt.Sprint(v.Global.Tag)
	}
	if kind != "" {
		if without, ok := strings.CutSuffix(tag, "-distroless"); ok {
			tag = without
		} else {
			tag = strings.TrimSuffix(tag, "-debug")
		}
		if kind != "default" {
			tag += "-" + kind
		}
	}
	return v.Global.Hub + "/" + cmp.Or(name, stockImage) + ":" + tag
}

// allowsImage returns an error if the Pod's annotation names an image that the values do not allow. An entry of the
// allowed images is a whole image, or a prefix followed by *. Without entries all images are allowed.
func (v values) allowsImage(annotations map[string]string) error {
	asked, there := annotations[annotation.SidecarProxyImage.Name]
	allowed := v.Global.Proxy.Allowed
	if !there || len(allowed) == 0 || slices.ContainsFunc(allowed, func(one string) bool {
		prefix, any := strings.CutSuffix(one, "*")
		return one == asked || any && strings.HasPrefix(asked, prefix)
	}) {
		return nil
	}
	return fmt.Errorf("annotation %s: %.200q is not allowed: want one of %s (global.proxy.allowedImages)", annotation.SidecarProxyImage.Name,
		asked, strings.Join(allowed, ", "))
}

// Owner identifies the workload of a Pod, such as a Deployment, or the Pod itself. Its namespace is the Pod's.
// APIVersion is GROUP/VERSION, or VERSION for the core group. Name is empty for a Pod without a name.
type Owner struct{ APIVersion, Kind, Name string }

var (
	podOwner = Owner{APIVersion: "v1", Kind: "Pod"}
	cronJob  = regexp.MustCompile(`^(.+)-\d{8,10}$`)
)

// OwnerOf returns the workload of a Pod, as its labels and its controlling owner state it.
func OwnerOf(pod *corev1.Pod) Owner { return ownerOf(pod, nil) }

// ownerOf returns the workload of a Pod. If the parameter known is not nil, the result is its value. If known is nil,
// the result follows from the Pod's controlling owner. A ReplicaSet belongs to a Deployment or Argo Rollout if its name
// ends in the pod-template-hash. A Job belongs to a CronJob if its name ends in 8 to 10 digits. A ReplicationController
// belongs to the DeploymentConfig in the label deploymentconfig. A Pod without a controlling owner is its own workload.
func ownerOf(pod *corev1.Pod, known *Owner) Owner {
	if known != nil {
		return *known
	}
	for _, ref := range pod.OwnerReferences {
		if ref.Controller == nil || !*ref.Controller {
			continue
		}
		o := Owner{ref.APIVersion, ref.Kind, ref.Name}
		hash, rollout := pod.Labels["pod-template-hash"], pod.Labels["rollouts-pod-template-hash"]
		switch {
		case o.Kind == "ReplicaSet" && hash != "" && strings.HasSuffix(o.Name, "-"+hash):
			o.Kind, o.Name = "Deployment", strings.TrimSuffix(o.Name, "-"+hash)
		case o.Kind == "ReplicaSet" && rollout != "" && strings.HasSuffix(o.Name, "-"+rollout):
			// As in Istio, the APIVersion of a Rollout lacks the group.
			o = Owner{"v1alpha1", "Rollout", strings.TrimSuffix(o.Name, "-"+rollout)}
		case o.Kind == "ReplicationController" && pod.Labels["deploymentconfig"] != "":
			o.Kind, o.Name = "DeploymentConfig", pod.Labels["deploymentconfig"]
		case o.Kind == "Job":
			if m := cronJob.FindStringSubmatch(o.Name); m != nil {
				o.Kind, o.Name = "CronJob", m[1]
			}
		}
		return o
	}
	o := podOwner
	o.Name = pod.Name
	return o
}
