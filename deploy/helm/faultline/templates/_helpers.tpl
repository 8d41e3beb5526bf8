{{- define "faultline.name" -}}
{{- if contains "faultline" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-faultline" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "faultline.selector" -}}
app.kubernetes.io/name: faultline
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "faultline.labels" -}}
{{ include "faultline.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "faultline.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end -}}

{{/* Of every pod: no root, nothing that the image didn't bring, no token of the cluster unless it is asked. */}}
{{- define "faultline.pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "faultline.container" -}}
image: {{ include "faultline.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
envFrom:
  - secretRef:
      name: {{ .Values.existingSecret }}
{{- end -}}

{{- define "faultline.env" -}}
- name: POD_IP # what a Prometheus asks for
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: ALLOWED_HOSTS
  value: {{ concat (list "localhost" "$(POD_IP)") .Values.hosts | join "," | quote }}
- name: FAULTLINE_HTTPS
  value: {{ ternary "1" "0" .Values.https | quote }}
- name: FAULTLINE_BEHIND_PROXY
  value: {{ ternary "1" "0" .Values.behindProxy | quote }}
- name: FAULTLINE_LOG_FORMAT
  value: {{ .Values.logFormat }}
{{- with .Values.url }}
- name: FAULTLINE_URL
  value: {{ . | quote }}
{{- end }}
{{- range $name, $value := .Values.extraEnv }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "faultline.mounts" -}}
- name: data
  mountPath: /data
- name: state
  mountPath: /state
- name: tmp
  mountPath: /tmp
{{- if .Values.config }}
- name: config
  mountPath: /etc/faultline
  readOnly: true
{{- end }}
{{- if .Values.sourceSecret }}
- name: source-secrets
  mountPath: /run/secrets
  readOnly: true
{{- end }}
{{- end -}}

{{- define "faultline.volumes" -}}
- name: data
  persistentVolumeClaim:
    claimName: {{ .Values.persistence.existingClaim | default (printf "%s-data" (include "faultline.name" .)) }}
- name: state
  emptyDir:
    sizeLimit: 64Mi
{{- if .Values.config }}
- name: config
  configMap:
    name: {{ include "faultline.name" . }}
{{- end }}
{{- if .Values.sourceSecret }}
- name: source-secrets
  secret:
    secretName: {{ .Values.sourceSecret }}
    defaultMode: 0440
{{- end }}
{{- end -}}
