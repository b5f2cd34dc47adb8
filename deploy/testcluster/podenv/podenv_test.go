package podenv

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestExpand(t *testing.T) {
	env := map[string]string{"A": "1", "EMPTY": "", "B": "$(A)"}
	for in, want := range map[string]string{"": "", "plain": "plain", "$(A)": "1", "x$(A)y$(A)": "x1y1", "$(EMPTY)": "", "$(C)": "$(C)", "$$(A)": "$(A)", "$$$(A)": "$1",
		"$A": "$A", "$(A": "$(A", "100$": "100$", "$(B)": "$(A)", "$(C)$(A)": "$(C)1"} {
		if got := Expand(in, env); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

var pod = &corev1.Pod{
	ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop", UID: "u-1", Labels: map[string]string{"app": "a", "b": `x"y`}, Annotations: map[string]string{"note": "n"}},
	Spec:       corev1.PodSpec{NodeName: "node-1", ServiceAccountName: "sa"},
}

var status = corev1.PodStatus{HostIP: "192.168.244.11", PodIP: "10.244.1.2", PodIPs: []corev1.PodIP{{IP: "10.244.1.2"}, {IP: "fd00:244::1:2"}}}

func TestField(t *testing.T) {
	for path, want := range map[string]string{"metadata.name": "p", "metadata.namespace": "shop", "metadata.uid": "u-1", "metadata.labels['app']": "a", "metadata.labels['none']": "",
		"metadata.annotations['note']": "n", "metadata.labels": "app=\"a\"\nb=\"x\\\"y\"", "spec.nodeName": "node-1", "spec.serviceAccountName": "sa", "status.hostIP": "192.168.244.11",
		"status.podIP": "10.244.1.2", "status.podIPs": "10.244.1.2,fd00:244::1:2"} {
		if got, err := Field(pod, status, path); err != nil || got != want {
			t.Errorf("%s: %q %v, want %q", path, got, err, want)
		}
	}
	if _, err := Field(pod, status, "spec.nothing"); err == nil {
		t.Error("a field that is not offered was given")
	}
}

func TestResource(t *testing.T) {
	c := &corev1.Container{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("64Mi")},
		Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}}}
	for _, test := range []struct{ field, divisor, want string }{{"limits.cpu", "0", "2"}, {"limits.cpu", "1m", "1500"}, {"limits.memory", "1Mi", "64"}, {"limits.memory", "0", "67108864"},
		{"requests.cpu", "1m", "100"}, {"requests.memory", "0", "0"}, {"limits.ephemeral-storage", "1Gi", "100"}} {
		got, err := Resource(pod, c, &corev1.ResourceFieldSelector{Resource: test.field, Divisor: resource.MustParse(test.divisor)})
		if err != nil || got != test.want {
			t.Errorf("%s in %s: %q %v, want %q", test.field, test.divisor, got, err, test.want)
		}
	}
}

var errNotFound = errors.New("not found")

var source = Source{
	ConfigMap: func(namespace, name string) (*corev1.ConfigMap, error) {
		if namespace != "shop" || name != "conf" {
			return nil, errNotFound
		}
		return &corev1.ConfigMap{Data: map[string]string{"key": "from-map", "LEVEL": "debug"}}, nil
	},
	Secret: func(namespace, name string) (*corev1.Secret, error) {
		if namespace != "shop" || name != "secret" {
			return nil, errNotFound
		}
		return &corev1.Secret{Data: map[string][]byte{"password": []byte("p")}}, nil
	},
	Services: func(namespace string) []*corev1.Service {
		port := []corev1.ServicePort{{Name: "http-web", Port: 80}, {Port: 81}}
		if namespace == "default" {
			return []*corev1.Service{{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}},
				{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9", Ports: port}}}
		}
		return []*corev1.Service{{ObjectMeta: metav1.ObjectMeta{Name: "web-app"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7", Ports: port}},
			{ObjectMeta: metav1.ObjectMeta{Name: "headless"}, Spec: corev1.ServiceSpec{ClusterIP: "None", Ports: port}}}
	},
}

func TestMake(t *testing.T) {
	key := func(name, key string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}}
	}
	yes := true
	optional := key("absent", "key")
	optional.ConfigMapKeyRef.Optional = &yes
	c := &corev1.Container{
		EnvFrom: []corev1.EnvFromSource{{Prefix: "C_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}}},
		Env: []corev1.EnvVar{{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}, {Name: "URL", Value: "http://$(IP):$(PORT)"},
			{Name: "PORT", Value: "1"}, {Name: "KEY", ValueFrom: key("conf", "key")}, {Name: "OPTIONAL", ValueFrom: optional}, {Name: "BASE", Value: "over $(WEB_APP_SERVICE_HOST)"},
			{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Key: "password"}}}}}
	env, err := Make(pod, c, status, map[string]string{"BASE": "image", "KEPT": "k"}, source)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(`C_LEVEL=debug C_key=from-map IP=10.244.1.2 KEPT=k KEY=from-map KUBERNETES_SERVICE_HOST=10.96.0.1 KUBERNETES_SERVICE_PORT=443 KUBERNETES_SERVICE_PORT_HTTPS=443
		PASSWORD=p PORT=1 URL=http://10.244.1.2:$(PORT) WEB_APP_SERVICE_HOST=10.96.0.7 WEB_APP_SERVICE_PORT=80 WEB_APP_SERVICE_PORT_HTTP_WEB=80`)
	want = append(want, "BASE=over 10.96.0.7")
	slices.Sort(want)
	if !slices.Equal(env, want) {
		t.Errorf("got  %q\nwant %q", env, want)
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: "ABSENT", ValueFrom: key("conf", "absent")})
	if _, err := Make(pod, c, status, nil, source); err == nil || !strings.Contains(err.Error(), "ABSENT") {
		t.Errorf("a key that is not there: %v", err)
	}
}
