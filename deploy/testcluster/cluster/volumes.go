package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// provisioner is the name of the cluster's storage class and of the provisioner of its volumes.
const provisioner = "folders"

// provisionerAnnotation is the annotation by which kube-controller-manager requests a claim's volume from an external
// provisioner, once a Pod is bound to a node (kubernetes.io: Well-Known Labels, Annotations and Taints).
const provisionerAnnotation = "volume.kubernetes.io/storage-provisioner"

// startVolumes creates the default storage class, and a PersistentVolume for each of its claims once a Pod needs the
// volume. A volume is a folder that all nodes share, so it has no node affinity. It exists until the cluster ends, even
// without its claim. The error is that of the API server.
func (s *supervisor) startVolumes(ctx context.Context, claims cache.SharedIndexInformer) error {
	later := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: provisioner,
		Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: provisioner, VolumeBindingMode: &later}
	if err := create(ctx, class, s.client.StorageV1().StorageClasses().Create); err != nil {
		return err
	}
	see := func(o any) {
		if claim, ok := o.(*corev1.PersistentVolumeClaim); ok &&
			claim.Spec.VolumeName == "" && claim.Annotations[provisionerAnnotation] == provisioner {
			go func() {
				if err := again(ctx, func() error { return s.provision(ctx, claim) }); err != nil && ctx.Err() == nil {
					s.log.Error("no volume", "claim", claim.Namespace+"/"+claim.Name, "err", err)
				}
			}()
		}
	}
	_, err := claims.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, o any) { see(o) }})
	return err
}

// provision creates the volume of a claim; kube-controller-manager then binds the claim to it.
func (s *supervisor) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	name := "pvc-" + string(claim.UID)
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name,
		Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisioner}},
		Spec: corev1.PersistentVolumeSpec{StorageClassName: provisioner,
			AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: s.path("volumes", name)}},
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1",
				Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}}}
	_, err := s.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
