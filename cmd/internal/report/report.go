// Package report defines the archive of navarchctl bug-report and snapshot save, writes it and reads it.
//
// # Form
//
// The archive is a tar in gzip. Each process writes its part as a gzip member of its own, below
// processes/NAME/, so that parts are joined by concatenation (gzip and tar allow that). The entries are:
//
//	index.json          schema, contents, time, the processes that are missing (Index)
//	processes/NAME/     of one process:
//	  process.json      build, flags, environment, revision (Facts)
//	  records.bin       the records, in the form of the mirror's file on disk; of one process only
//	  proxies.jsonl     the connected proxies, one per line (Proxy)
//	  held.bin          what proxies hold, each resource once (Sets)
//	  *.json            pages of /debug and parts of /api/v1, by name
//	  *.txt             goroutines, metrics (twice), log lines: for people
//	envoys/NAME.json    dumps of Envoys
//	envoys.json         which proxies were asked for a dump, and why others were not
//
// # Secrets
//
// Private keys of Secrets are never written, sealed or not. Values that look like credentials are cut
// (report/cut): by the name of their key, or by their form.
//
// Owns: the form.
// Reads: nothing but what it is given.
// Never: trusts an archive: sizes, numbers and names are bounded (Limits).
package report

import (
	"time"

	"navarch.io/navarch/cmd/internal/report/cut"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/normal"
)

// Schema names the form of the archive. Readers refuse others.
const Schema = "navarch.io/report/v1"

// Contents says what an archive has.
type Contents string

// The contents of archives.
const (
	Full  Contents = "bug-report" // everything
	Brief Contents = "snapshot"   // what read commands need: no logs, flags, environment, goroutines, metrics, Envoys
)

// Names of entries.
const (
	indexName   = "index.json"
	factsName   = "process.json"
	recordsName = "records.bin"
	proxiesName = "proxies.jsonl"
	heldName    = "held.bin"
	envoysName  = "envoys.json"
	processes   = "processes/"
	envoys      = "envoys/"
)

// Index is the content of index.json.
type Index struct {
	Schema   string    `json:"schema"`
	Contents Contents  `json:"contents"`
	Created  time.Time `json:"created"`
	Version  string    `json:"version"`           // of the build that made it
	Asked    string    `json:"asked"`             // the process that asked the others
	Missing  []Missing `json:"missing,omitempty"` // the processes that are not in the archive
}

// Missing is a process, or a part of one, that is not in the archive.
type Missing struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Facts is the content of process.json.
type Facts struct {
	Name        string    `json:"name"`
	Version     string    `json:"version"`
	Go          string    `json:"golang_version,omitempty"`
	Platform    string    `json:"platform,omitempty"`
	Zone        string    `json:"zone,omitempty"`
	Roles       []string  `json:"roles,omitempty"`
	Flags       []string  `json:"flags,omitempty"`       // those that were set, as --name=value
	Environment []string  `json:"environment,omitempty"` // of the variables that the process reads, as NAME=value
	Created     time.Time `json:"created"`
	// Served and Notified are the store's revisions that the process serves, and up to which its proxies are notified; 0:
	// it serves no proxies.
	Served   int64 `json:"served,omitempty"`
	Notified int64 `json:"notified,omitempty"`
	// Cluster is the name of the config cluster, and Normal how objects become records: for previews.
	Cluster string         `json:"cluster,omitempty"`
	Normal  normal.Options `json:"normal"`
	Missing []Missing      `json:"missing,omitempty"` // parts that this process could not make
}

// Proxy is a connected proxy.
type Proxy struct {
	Node      Node             `json:"node"`
	Identity  string           `json:"identity,omitempty"`
	Address   string           `json:"address,omitempty"`
	Connected time.Time        `json:"connected"`
	Behind    time.Time        `json:"behind,omitzero"`
	Revision  int64            `json:"revision"`
	Types     map[string]State `json:"types"` // the subscribed types, by noun
	// Set numbers the set of resources that the proxy holds (Sets.Add), or another proxy of its view; -1: it was left out.
	Set int `json:"set"`
}

// State is the state of one type of resources at a proxy.
type State struct {
	Synced   bool               `json:"synced,omitempty"`
	Sent     string             `json:"sent,omitempty"`
	Acked    string             `json:"acked,omitempty"`
	Refused  []inspect.Refused  `json:"refused,omitempty"`
	Withheld []inspect.Withheld `json:"withheld,omitempty"`
	Warming  *inspect.Warming   `json:"warming,omitempty"`
}

// StatesOf returns the states of the subscribed types, without credentials in the texts of refusals.
func StatesOf(types *[xds.NumTypes]inspect.TypeStatus) map[string]State {
	all := map[string]State{}
	for t := range types {
		for i := range types[t].Refused {
			types[t].Refused[i].Text = cut.String(types[t].Refused[i].Text)
		}
		for i := range types[t].Withheld {
			types[t].Withheld[i].Text = cut.String(types[t].Withheld[i].Text)
		}
	}
	for t := range xds.NumTypes {
		if s := &types[t]; s.Subscribed {
			all[t.Noun()] = State{Synced: s.Synced, Sent: s.Sent, Acked: s.Acked,
				Refused: s.Refused, Withheld: s.Withheld, Warming: s.Warming}
		}
	}
	return all
}

// Statuses is the inverse of StatesOf.
func (p *Proxy) Statuses() (types [xds.NumTypes]inspect.TypeStatus) {
	for t := range xds.NumTypes {
		if s, ok := p.Types[t.Noun()]; ok {
			types[t] = inspect.TypeStatus{Subscribed: true, Synced: s.Synced, Sent: s.Sent, Acked: s.Acked,
				Refused: s.Refused, Withheld: s.Withheld, Warming: s.Warming}
		}
	}
	return types
}

// Ill reports whether the proxy refuses something, something is withheld from it, or it is out of sync.
func (p *Proxy) Ill() (refuses, behind bool) {
	for _, s := range p.Types {
		refuses = refuses || len(s.Refused)+len(s.Withheld) > 0
		behind = behind || !s.Synced
	}
	return refuses, behind
}

// Envoy is an entry of envoys.json: a proxy that was asked for a dump.
type Envoy struct {
	Proxy string `json:"proxy"`
	State string `json:"state"`           // "refusing" or "behind"
	File  string `json:"file,omitempty"`  // the entry with the dump
	Error string `json:"error,omitempty"` // the reason for a missing dump
}
