package normal

import (
	"slices"
	"strings"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// irrelevant lists, by API group, kinds that do not affect a mesh. Files often contain objects of these kinds. Objects
// of a kind that is neither here nor in the map kinds are reported. Ingress and Endpoints are not listed here, because
// users may expect them to affect the mesh.
var irrelevant = map[string]string{
	"": "Binding Event LimitRange PersistentVolume PersistentVolumeClaim PodTemplate ReplicationController ResourceQuota",
	"admissionregistration.k8s.io": "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration " +
		"ValidatingAdmissionPolicy " +
		"ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
	"apiextensions.k8s.io":         "CustomResourceDefinition",
	"apiregistration.k8s.io":       "APIService",
	"apps":                         "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
	"autoscaling":                  "HorizontalPodAutoscaler",
	"batch":                        "CronJob Job",
	"certificates.k8s.io":          "CertificateSigningRequest ClusterTrustBundle",
	"coordination.k8s.io":          "Lease",
	"events.k8s.io":                "Event",
	"flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
	"kustomize.config.k8s.io":      "Component Kustomization",
	"networking.k8s.io":            "IngressClass IPAddress NetworkPolicy ServiceCIDR",
	"node.k8s.io":                  "RuntimeClass",
	"policy":                       "PodDisruptionBudget",
	"resource.k8s.io":              "DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice",
	"scheduling.k8s.io":            "PriorityClass",
	"storage.k8s.io":               "CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass",
}

// unknown reports an object of a kind that is not read, unless the kind is irrelevant.
func (r *report) unknown(id object.ID) {
	switch {
	case slices.Contains(strings.Fields(irrelevant[id.Group]), id.Kind):
	case strings.HasSuffix(id.Group, "istio.io"):
		r.warnf(problem.NotSupported, "", "kind %s of %s is not acted on yet", id.Kind, id.Group)
	case id.Group == "":
		r.warnf(problem.NotSupported, "", "kind %s of the core group is not acted on: the object is left out", id.Kind)
	default:
		r.warnf(problem.NotSupported, "", "kind %s of %s is not acted on: the object is left out", id.Kind, id.Group)
	}
}
