{{- /* Who signs the certificates of workloads (value issuer). */}}

{{- /* Nothing of another kind of issuer is left unused, and nothing that is needed is missing. */}}
{{- define "navarch.checkIssuer" -}}
{{- $i := .Values.issuer }}
{{- $needs := dict "own" (list) "signers" (list "signers" "servingSecretName") "other" (list "address" "roots" "servingSecretName") }}
{{- $may := dict "own" (list) "signers" (list "defaultSigner" "signerDomain" "servingRoots") "other" (list "servingRoots") }}
{{- range $name, $value := omit $i "kind" }}
  {{- if and $value (not (has $name (concat (index $needs $i.kind) (index $may $i.kind)))) }}{{ fail (printf "issuer.%s is not for issuer.kind %s" $name $i.kind) }}{{ end }}
{{- end }}
{{- range index $needs $i.kind }}
  {{- if not (index $i .) }}{{ fail (printf "issuer.kind %s needs issuer.%s" $i.kind .) }}{{ end }}
{{- end }}
{{- if eq $i.kind "signers" }}
  {{- if not (or $i.defaultSigner $i.signerDomain) }}{{ fail "issuer.kind signers needs issuer.defaultSigner, or issuer.signerDomain" }}{{ end }}
  {{- if and $i.defaultSigner (not (hasKey $i.signers $i.defaultSigner)) }}{{ fail (printf "issuer.signers has no roots of issuer.defaultSigner, %s" $i.defaultSigner) }}{{ end }}
{{- end }}
{{- if and (ne $i.kind "own") (not $i.servingRoots) (or .Values.validation.enabled .Values.injection.enabled) }}
  {{- fail (printf "issuer.kind %s needs issuer.servingRoots, by which API servers believe the webhooks (injection.enabled, validation.enabled)" $i.kind) }}
{{- end }}
{{- end }}

{{- /* Flags of navarchd, one in a line, and its environment: each takes a dict of root and entry. */}}
{{- define "navarch.issuerFlags" -}}
{{- if and (ne .root.Values.issuer.kind "own") (or (has "xds" .entry.roles) (has "admit" .entry.roles)) }}
--tls-cert=/etc/navarch/serving/tls.crt
--tls-key=/etc/navarch/serving/tls.key
{{- if has "xds" .entry.roles }}
--tls-client-ca=/etc/navarch/serving/ca.crt
{{- end }}
{{- end }}
{{- end }}

{{- define "navarch.issuerEnvironment" -}}
{{- $i := .root.Values.issuer }}
{{- if eq $i.kind "signers" }}
- {name: EXTERNAL_CA, value: ISTIOD_RA_KUBERNETES_API}
{{- with $i.defaultSigner }}
- {name: K8S_SIGNER, value: {{ . | quote }}}
{{- end }}
{{- with $i.signerDomain }}
- {name: CERT_SIGNER_DOMAIN, value: {{ . | quote }}}
{{- end }}
{{- else if eq $i.kind "other" }}
- {name: ENABLE_CA_SERVER, value: "false"}
{{- end }}
{{- end }}

{{- /* caCertificates of the mesh configuration, as a YAML list. */}}
{{- define "navarch.issuerRoots" -}}
{{- $all := list }}
{{- range $signer, $pem := .Values.issuer.signers }}{{ $all = append $all (dict "certSigners" (list $signer) "pem" $pem) }}{{ end }}
{{- with .Values.issuer.roots }}{{ $all = append $all (dict "pem" .) }}{{ end }}
{{- toYaml $all }}
{{- end }}
