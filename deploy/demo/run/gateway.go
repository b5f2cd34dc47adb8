package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"navarch.io/navarch/deploy/demo/site"
)

// openSite makes the authority, writes the first certificate, and sends all calls through the gateway.
func (m *mesh) openSite() (err error) {
	if m.site, err = site.New(); err != nil {
		return err
	}
	if err := errors.Join(replaceFile(m.siteRoot(), m.site.Root()), m.writeCertificate()); err != nil {
		return err
	}
	m.web = newCaller("https://"+site.Host, site.Host, m.dialGateway)
	m.web.client.Transport.(*http.Transport).TLSClientConfig = m.site.Client()
	return nil
}

// siteRoot is the path of the root that users trust.
func (m *mesh) siteRoot() string { return filepath.Join(m.dir, "site-root.pem") }

// writeCertificate writes the next certificate into the Secret that the Gateway names.
func (m *mesh) writeCertificate() error {
	secret, err := m.site.Next(m.gateway.namespace)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(m.config, "gateway-certificate.yaml"), secret)
}

// dialGateway connects to the gateway, as a load balancer would: port 80 is 8080 of the Pod, 443 is 8443.
func (m *mesh) dialGateway(ctx context.Context, network, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	to := map[string]string{"80": "8080", "443": "8443"}[port]
	return (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, net.JoinHostPort(m.gateway.ip, to))
}

// fromOutside is the way of a user: plain HTTP is redirected, TLS ends at the gateway, and web sees the gateway's
// identity.
func (m *mesh) fromOutside(ctx context.Context) (string, error) {
	user := &http.Client{Timeout: askLimit, Transport: &http.Transport{DialContext: m.dialGateway, TLSClientConfig: m.site.Client()},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer user.CloseIdleConnections()
	plain, _, err := site.Get(ctx, user, "http")
	if err != nil {
		return "", err
	}
	if to := plain.Header.Get("Location"); plain.StatusCode != http.StatusMovedPermanently || to != "https://"+site.Host+"/" {
		return "", fmt.Errorf("plain HTTP: status %d to %q, want 301 to HTTPS", plain.StatusCode, to)
	}
	began := time.Now()
	res, body, err := site.Get(ctx, user, "https")
	if err != nil {
		return "", err
	}
	var web struct{ Name, Version, Caller string }
	if err := json.Unmarshal(body, &web); err != nil || res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d: %.200s %w", res.StatusCode, body, errors.Join(err))
	}
	identity := fmt.Sprintf("ns/%s/sa/%s", m.gateway.namespace, m.gateway.account)
	measured := fmt.Sprintf("HTTP: 301; HTTPS: %s, status %d from %s %s in %.1f ms, called by %s", tls.VersionName(res.TLS.Version),
		res.StatusCode, web.Name, web.Version, time.Since(began).Seconds()*1000, identity)
	if web.Name != "web" || !strings.Contains(web.Caller, "URI=spiffe://cluster.local/"+identity) {
		return measured, fmt.Errorf("%s answered, and sees %q", web.Name, web.Caller)
	}
	return measured, nil
}

// renewSite replaces the certificate of the host during traffic, and waits until the gateway presents it.
func (m *mesh) renewSite(ctx context.Context) (string, error) {
	return m.under(ctx, "reviews/", func() (string, error) {
		pause(ctx, time.Second/2)
		if err := m.writeCertificate(); err != nil {
			return "", err
		}
		wrote := time.Now()
		err := m.children.await(ctx, "the new certificate", liveLimit, func(ctx context.Context) error {
			serial, err := m.presented(ctx)
			if err == nil && serial != m.site.Serial() {
				err = fmt.Errorf("the gateway presents certificate %d, not %d", serial, m.site.Serial())
			}
			return err
		})
		took := time.Since(wrote)
		pause(ctx, time.Second/2)
		return fmt.Sprintf("presented after %d ms", took.Milliseconds()), err
	})
}

// presented returns the serial number of the certificate in a new handshake with the gateway.
func (m *mesh) presented(ctx context.Context) (int64, error) {
	raw, err := m.dialGateway(ctx, "tcp", site.Host+":443")
	if err != nil {
		return 0, err
	}
	conn := tls.Client(raw, m.site.Client())
	defer conn.Close()
	if err := conn.HandshakeContext(ctx); err != nil {
		return 0, err
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}
