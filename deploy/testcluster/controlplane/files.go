package controlplane

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// adminToken is the administrator's token for a server that only this machine can reach.
const adminToken = "admintoken"

// writeKeys writes the key that signs service-account tokens, and the administrator's token.
func writeKeys(dir string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	var all []error
	for name, content := range map[string][]byte{
		"sa.key":     pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		"sa.pub":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		"tokens.csv": []byte(adminToken + `,admin,1,"system:masters"` + "\n"),
	} {
		all = append(all, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return errors.Join(all...)
}

// writeKubeconfig writes the administrator's kubeconfig, with the certificate that the API server generated.
func (c *ControlPlane) writeKubeconfig() error {
	certificate, err := os.ReadFile(filepath.Join(c.dir, "certs", "apiserver.crt"))
	if err != nil {
		return err
	}
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: "https://" + c.address, CertificateAuthorityData: certificate}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"admin": {Token: adminToken}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "admin"}},
		CurrentContext: "test",
	}, c.Kubeconfig())
}

// ApplyCRDs creates the definitions of the kinds of "istio" or "gateway-api", and waits until they are served.
func (c *ControlPlane) ApplyCRDs(t testing.TB, names ...string) {
	t.Helper()
	if err := c.applyCRDs(names...); err != nil {
		t.Fatal(err)
	}
}

func (c *ControlPlane) applyCRDs(names ...string) error {
	for _, file := range c.definitionTexts(names) {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("no %s: run `make kube-tools` (%w)", filepath.Base(file), err)
		}
		// Not client-side apply: its annotation would exceed the limit of annotations.
		if _, err := c.kubectl(strings.NewReader(""), "apply", "--server-side", "--validate=false", "-f", file); err != nil {
			return err
		}
	}
	return c.awaitDefinitions()
}
