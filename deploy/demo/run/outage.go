package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// killControlPlane checks that traffic continues, and proxies stay ready, without the control plane.
func (m *mesh) killControlPlane(ctx context.Context, path string) (string, error) {
	return m.under(ctx, path, func() (string, error) {
		pause(ctx, time.Second/2)
		m.children.forget(m.navarchd)
		m.navarchd.kill()
		pause(ctx, 3*time.Second)
		pages, err := m.pages(ctx)
		if err != nil {
			return "", err
		}
		for pod, page := range pages {
			if page.XDS.Connected || !page.Ready || page.Envoy.Starts != 1 {
				return "", fmt.Errorf("proxy of %s: connected %v, ready %v, %d starts", pod, page.XDS.Connected, page.Ready, page.Envoy.Starts)
			}
		}
		return fmt.Sprintf("%d Envoys LIVE without it", len(pages)), nil
	})
}

// restartControlPlane checks that a new control plane sends no responses: the proxies only send requests, which claim
// their resources.
func (m *mesh) restartControlPlane(ctx context.Context, path string) (string, error) {
	before, err := m.pages(ctx)
	if err != nil {
		return "", err
	}
	m.cutOff = before
	return m.under(ctx, path, func() (string, error) {
		took, err := m.startControlPlane(ctx)
		if err != nil {
			return "", err
		}
		back := time.Now()
		err = m.children.await(ctx, "all proxies connected again", liveLimit, func(ctx context.Context) error {
			pages, err := m.pages(ctx)
			if err != nil {
				return err
			}
			for pod, page := range pages {
				if !page.XDS.Connected || page.XDS.Connects == before[pod].XDS.Connects {
					return fmt.Errorf("%s is not connected", pod)
				}
			}
			return nil
		})
		if err != nil {
			return "", err
		}
		reconnect := time.Since(back)
		pause(ctx, settle)
		up, down, socket, err := m.bytesSince(ctx, before)
		measured := fmt.Sprintf("ready after %d ms, all connected %d ms later; %d bytes of requests, %d of responses (socket: %d read)",
			took.Milliseconds(), reconnect.Milliseconds(), up, down, socket)
		if err == nil && down != 0 {
			err = errors.New("want not one byte of response")
		}
		return measured, err
	})
}

// bytesSince returns the bytes on the agents' sockets to the control plane since `before`. The error names a proxy that
// has sent no request.
func (m *mesh) bytesSince(ctx context.Context, before map[string]agentPage) (up, down, socket int, err error) {
	now, err := m.pages(ctx)
	for pod, page := range now {
		a, b := before[pod].XDS.Total, page.XDS.Total
		up, down, socket = up+b.RequestBytes-a.RequestBytes, down+b.ResponseBytes-a.ResponseBytes, socket+b.SocketReadBytes-a.SocketReadBytes
		if b.Requests == a.Requests {
			err = errors.Join(err, fmt.Errorf("proxy of %s asked for nothing", pod))
		}
	}
	return up, down, socket, err
}
