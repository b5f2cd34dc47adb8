package proxy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/xds"
)

// The types that only agents request (the contract between replica and agent).
const (
	ownerURL = "navarch.io/owner"
	ownerID  = "owner"
	trustURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext"
	trustID  = "ROOTCA"
)

// askAgentTypes subscribes to the agent types, after Envoy's first request.
func (s *sim) askAgentTypes() {
	if s.sotw {
		return
	}
	if s.fleet.cfg.Follow && !s.session.let { // otherwise the subscription was sent with the move
		s.write(agentType, request{url: ownerURL, subscribe: []string{ownerID}})
	}
	if s.fleet.cfg.Trust {
		s.write(agentType, request{url: trustURL, subscribe: []string{trustID}})
	}
}

// endAgentType processes the end of a response of an agent type.
func (s *sim) endAgentType(url, nonce string, m response, size int) error {
	count := &s.fleet.count.types[agentType]
	count.responses.Add(1)
	count.resources.Add(uint64(len(m.agentTypes)))
	count.removed.Add(uint64(len(m.removed)))
	count.bytesIn.Add(uint64(size))
	asked := url == ownerURL && s.fleet.cfg.Follow || url == trustURL && s.fleet.cfg.Trust
	if !asked {
		s.fleet.count.violation(Unrequested, Example{Proxy: s.id.String(), Type: strings.Clone(url),
			Detail: "the type was not asked for"})
		return nil
	}
	r := request{url: strings.Clone(url), nonce: strings.Clone(nonce)}
	if len(m.agentTypes) > 0 {
		if err := s.takeAgentResource(url, m.agentTypes[0].body); err != nil {
			r.refusal = err.Error()
			s.fleet.count.violation(InvalidContent, Example{Proxy: s.id.String(), Type: r.url, Name: m.agentTypes[0].name, Detail: err.Error()})
		}
	}
	s.write(agentType, r)
	if r.refusal == "" {
		count.acks.Add(1)
	} else {
		count.nacks.Add(1)
	}
	return s.session.flush()
}

func (s *sim) takeAgentResource(url string, body []byte) error {
	if url == ownerURL {
		return s.learn(body)
	}
	if s.fleet.cfg.OnTrust == nil {
		return nil
	}
	return s.fleet.cfg.OnTrust(s.id, body)
}

// learn stores the address of the replica that owns this proxy.
func (s *sim) learn(body []byte) error {
	var who structpb.Struct
	if err := proto.Unmarshal(body, &who); err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	address := who.GetFields()["address"].GetStringValue()
	self := who.GetFields()["self"].GetBoolValue()
	switch {
	case self:
		s.turnBack()
		s.owner = s.session.addr
	case address != "" && address != s.session.addr:
		s.bound(address)
	}
	return nil
}

// sendMalformed sends one request that Envoy never sends.
func (s *sim) sendMalformed(kind Malformed) {
	url := xds.Route.URL()
	raw := func(b ...byte) { s.sendRaw(b) }
	expect := func(t xds.Type, name string) string { // an answer to its own request is not a violation
		s.gone[t].add(s.fleet.names.name(t, name).index)
		return name
	}
	switch kind {
	case NotProtobuf:
		raw([]byte("GET / HTTP/1.1\r\n\r\n")...)
	case NotUTF8:
		s.session.send(request{url: url, subscribe: []string{"\xff\xfe"}}.encode())
	case UnknownType:
		s.session.send(request{url: "type.googleapis.com/nobody.serves.This", subscribe: []string{"x"}}.encode())
	case StaleNonce:
		s.session.send(request{url: url, nonce: "never-sent"}.encode())
	case HugeName:
		s.session.send(request{url: xds.Endpoint.URL(), subscribe: []string{expect(xds.Endpoint, strings.Repeat("x", 64<<10))}}.encode())
	case HugeMessage:
		s.session.send([]byte{0, 0xff, 0xff, 0xff, 0xff})
	case NodeAgain:
		node, err := encodeNode(Identity{Name: "other", Namespace: s.id.Namespace, IP: "127.0.0.1"}, &s.fleet.cfg)
		if err == nil {
			s.session.send(request{url: url, node: node}.encode())
		}
	case BothSubscribed:
		s.session.send(request{url: url, subscribe: []string{expect(xds.Route, "both")}, unsubscribe: []string{"both"}}.encode())
	case SecondCDS:
		s.session.send(request{url: xds.Cluster.URL()}.encode())
	case WellFormed:
	}
}

// minRevision returns the highest revision that the proxy has seen as metadata, as navarch-agent sends it.
func (s *sim) minRevision() [][2]string {
	if !s.fleet.cfg.Follow || s.sotw {
		return nil
	}
	highest := slices.Max(s.revision[:])
	if highest == 0 {
		return nil
	}
	h := [][2]string{{"navarch-revision", strconv.FormatUint(highest, 10)}}
	if id, ok := s.fleet.storeID.Load().(string); ok {
		h = append(h, [2]string{"navarch-store", id})
	}
	return h
}
