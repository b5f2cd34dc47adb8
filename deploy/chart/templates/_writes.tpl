{{- /* What role ingest writes, as variables and validations of policies. */}}

{{- /* Roots and revocation lists of the mesh, each under its key; other keys of a ConfigMap that somebody else has made stay. */}}
{{- define "navarch.writes.configmaps" -}}
variables:
- name: key
  expression: "object.metadata.name == 'istio-ca-crl' ? 'ca-crl.pem' : 'root-cert.pem'"
- name: begin
  expression: "object.metadata.name == 'istio-ca-crl' ? '-----BEGIN X509 CRL-----\\n' : '-----BEGIN CERTIFICATE-----\\n'"
- name: data
  expression: "has(object.data) ? object.data : {}"
- name: before
  expression: "oldObject != null && has(oldObject.data) ? oldObject.data : {}"
validations:
- expression: "request.operation != 'DELETE' && object.metadata.name in ['istio-ca-root-cert', 'istio-ca-crl']"
  message: navarchd writes the ConfigMaps istio-ca-root-cert and istio-ca-crl alone, and deletes none
- expression: "request.operation == 'DELETE' || variables.key in variables.data && variables.data[variables.key].startsWith(variables.begin) && variables.data[variables.key].endsWith('-----\\n')"
  message: the ConfigMap has to have certificates in root-cert.pem, or revocation lists in ca-crl.pem
- expression: >-
    request.operation == 'DELETE' || variables.data.all(k, k == variables.key || k in variables.before && variables.before[k] == variables.data[k]) &&
    variables.before.all(k, k == variables.key || k in variables.data) && (!has(object.binaryData) || oldObject != null && has(oldObject.binaryData) &&
    object.binaryData.all(k, k in oldObject.binaryData && object.binaryData[k] == oldObject.binaryData[k]))
  message: navarchd changes no other key of the ConfigMap
{{- end }}

{{- /* Warnings of its own. */}}
{{- define "navarch.writes.events" -}}
validations:
- expression: >-
    request.operation != 'DELETE' && object.type == 'Warning' && object.reportingComponent == 'navarchd' && (oldObject == null || oldObject.reportingComponent == 'navarchd')
  message: navarchd writes Warning Events that name navarchd as their reporter, changes none of others, and deletes none
{{- end }}

{{- /* Those of machines that have registered themselves; of others it says that their machine is connected, in annotations. */}}
{{- define "navarch.writes.workloadentries" -}}
variables:
- name: existing
  expression: "request.operation == 'CREATE' ? object : oldObject"
- name: registered
  expression: "has(variables.existing.metadata.annotations) && 'istio.io/autoRegistrationGroup' in variables.existing.metadata.annotations"
validations:
- expression: "variables.registered || request.operation == 'UPDATE' && object.spec == oldObject.spec"
  message: navarchd makes, changes and deletes WorkloadEntries of machines that register themselves (annotation istio.io/autoRegistrationGroup) alone
{{- end }}
