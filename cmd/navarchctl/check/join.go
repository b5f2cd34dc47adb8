package check

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	securityv1 "istio.io/api/security/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/admit/inject"
)

const (
	securePort = 15012            // port of the CA and of ADS
	account    = "default"        // service account for the check
	audience   = "istio-ca"       // audience of the token
	lifetime   = 15 * time.Minute // lifetime of the token
)

// join performs the steps of a starting workload at each ready replica with role xds or ca. It sends a token to the CA,
// and requests clusters by ADS.
func (k *checker) join(ctx context.Context) {
	check := NameWorkload.of("certificate and configuration of a workload")
	asked := k.processes("xds", "ca")
	if len(asked) == 0 {
		k.add(check, Unknown, errNoReplica.Error(), "")
		return
	}
	roots, err := k.roots(ctx)
	if err != nil {
		status, do := k.issuer().roots()
		k.add(check, status, err.Error(), do)
		return
	}
	token, err := k.token(ctx)
	if err != nil {
		k.cannot(check, fmt.Errorf("a token of service account %s/%s: %w", k.Namespace, account, err))
		return
	}
	for _, r := range asked {
		check := check.with(", by " + r.Name)
		found, err := k.joins(ctx, r, roots, token)
		if err != nil {
			k.add(check, Failure, err.Error(), "see the replica's log: it says whom it refuses, and why")
			continue
		}
		k.add(check, OK, found, "")
	}
}

// roots reads the roots that workloads of the namespace receive.
func (k *checker) roots(ctx context.Context) (*x509.CertPool, error) {
	path := "/api/v1/namespaces/" + url.PathEscape(k.Namespace) + "/configmaps/istio-ca-root-cert"
	var found corev1.ConfigMap
	if err := k.get(ctx, path, &found); err != nil {
		return nil, fmt.Errorf("ConfigMap %s/istio-ca-root-cert: %w", k.Namespace, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(found.Data["root-cert.pem"])) {
		return nil, fmt.Errorf("ConfigMap %s/istio-ca-root-cert has no certificate in root-cert.pem", k.Namespace)
	}
	return pool, nil
}

// token requests a token of the namespace's default service account, such as agents have.
func (k *checker) token(ctx context.Context) (string, error) {
	seconds := int64(lifetime.Seconds())
	request := authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience},
		ExpirationSeconds: &seconds}}
	path := "/api/v1/namespaces/" + url.PathEscape(k.Namespace) + "/serviceaccounts/" + account + "/token"
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := k.API.Do(ctx, http.MethodPost, path, request, &request)
	return request.Status.Token, err
}

// joins tests one replica. It tests the CA if the replica signs certificates, and requests clusters if the replica
// serves proxies. If both tests succeed, the result found describes them.
func (k *checker) joins(ctx context.Context, r process, roots *x509.CertPool, token string) (found string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conf := &tls.Config{RootCAs: roots, ServerName: inject.NameOf("istiod", k.Revision) +
		"." + k.Namespace + ".svc", MinVersion: tls.VersionTLS12}
	conn, err := grpc.NewClient("passthrough:///replica", grpc.WithTransportCredentials(credentials.NewTLS(conf)), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return r.Dial(ctx, securePort)
	}))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	var all []string
	if slices.Contains(r.roles, "ca") && k.issuer() != otherCA {
		if err := certificate(ctx, conn); err != nil {
			return "", fmt.Errorf("a CSR: %w", err)
		}
		if all = append(all, "the CA takes the token and can sign"); k.issuer() == signers {
			all[0] = "the CA takes the token (the signer was not asked)"
		}
	}
	if slices.Contains(r.roles, "xds") {
		if err := k.clusters(ctx, conn); err != nil {
			return "", fmt.Errorf("clusters by ADS: %w", err)
		}
		all = append(all, "clusters were sent")
	}
	found = strings.Join(all, ", and ")
	if k.issuer() == otherCA {
		found += "; another CA signs, and was not asked"
	}
	return found, nil
}

// clusters requests clusters, and returns nil once a response has arrived.
func (k *checker) clusters(ctx context.Context, conn *grpc.ClientConn) error {
	node, err := node(k.Namespace)
	if err != nil {
		return err
	}
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: xds.Cluster.URL()})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

// notACSR is sent instead of a certificate signing request. The CA refuses this text only after it has verified the
// token, admitted the request, and found the signing key. The refusal therefore proves these steps, and no
// certificate is issued.
const notACSR = "navarchctl check: this is not a certificate signing request"

// certificate sends notACSR to the CA. It returns nil if the CA refuses notACSR as an invalid request. In this case the
// CA would have signed a valid request.
func certificate(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &securityv1.IstioCertificateRequest{Csr: notACSR})
	switch status.Code(err) {
	case codes.InvalidArgument:
		return nil
	case codes.OK:
		return errors.New("the CA signed a text that is not a certificate signing request")
	}
	return err
}

// checkAddress is the address of the simulated sidecar. The address is from a documentation range (RFC 5737), so no
// workload of the mesh has this address.
const checkAddress = "192.0.2.1"

// node returns the node of a sidecar without a workload.
func node(namespace string) (*corev3.Node, error) {
	meta, err := structpb.NewStruct(map[string]any{"NAME": "navarchctl-check",
		"NAMESPACE": namespace, "SERVICE_ACCOUNT": account, "INSTANCE_IPS": checkAddress})
	return &corev3.Node{Id: fmt.Sprintf("sidecar~%s~navarchctl-check.%s~%s.svc.cluster.local", checkAddress, namespace, namespace),
		Metadata: meta}, err
}
