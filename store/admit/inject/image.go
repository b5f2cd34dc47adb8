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

// image returns the image HUB/NAME:TAG according to the values. A type of image (distroless, debug) is a suffix of the
// tag. It comes from the Pod's annotation, otherwise from the proxy's configuration, otherwise from the values'
// variant. The type default adds no suffix.
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

// allowsImage refuses an image that the Pod's annotation names and the values do not allow. An allowed image is a whole
// text, or ends with * and stands for all that begin so.
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

// Owner is the workload that a Pod belongs to.
type Owner struct{ APIVersion, Kind, Name string }

var (
	podOwner = Owner{APIVersion: "v1", Kind: "Pod"}
	cronJob  = regexp.MustCompile(`^(.+)-\d{8,10}$`)
)

// ownerOf returns the workload of a Pod. It follows the controlling owner one step further than Kubernetes does: a
// ReplicaSet stands for its Deployment (its name ends in the pod-template-hash), and a Job of a CronJob for the
// CronJob. A Pod without a controlling owner is its own workload.
func ownerOf(pod *corev1.Pod, known *Owner) Owner {
	if known != nil {
		return *known
	}
	for _, ref := range pod.OwnerReferences {
		if ref.Controller == nil || !*ref.Controller {
			continue
		}
		o := Owner{ref.APIVersion, ref.Kind, ref.Name}
		switch hash := pod.Labels["pod-template-hash"]; {
		case o.Kind == "ReplicaSet" && hash != "" && strings.HasSuffix(o.Name, "-"+hash):
			o.Kind, o.Name = "Deployment", strings.TrimSuffix(o.Name, "-"+hash)
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
