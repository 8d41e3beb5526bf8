"""Django's admin site as an application, with Faultline's own site (admin_site.py)."""

from django.contrib.admin.apps import AdminConfig


class FaultlineAdminConfig(AdminConfig):
    default_site = "triage.admin_site.Site"
